"""Behaviour of the Python API, promise by promise, on every store."""
