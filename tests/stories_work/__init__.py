"""Whole pieces of work, through the command, as in the source scenarios."""
