"""Verbs for one session's life: open, list, show, record, pause, close, bundle."""
