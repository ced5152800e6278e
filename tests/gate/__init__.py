"""The gate: rules, advice, the command, and its laws."""
