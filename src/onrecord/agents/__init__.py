"""A vendor and a session together: start, wrap, resume, mirror, wait, hand over, import, adopt."""
