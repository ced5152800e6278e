"""Hooks: the process that every hook of every agent calls."""
