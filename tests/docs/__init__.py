"""The documentation, executed."""
