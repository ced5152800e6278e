"""Behaviour of the Python API, line by line of the checklist, on every store."""
