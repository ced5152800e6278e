"""Whole pieces of work, through the command, the way the source scenarios tell them."""
