"""Hooks: the process every hook of every agent calls."""
