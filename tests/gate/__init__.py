"""The gate: rules, advice, the command, and what always holds of them."""
