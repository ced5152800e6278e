"""Verbs for coding agents: start, resume, import, setup, team."""
