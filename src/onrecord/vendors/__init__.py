"""Coding-agent CLIs: one module each, all translating between a vendor's ways and the words of `port`."""
