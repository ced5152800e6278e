"""Verbs for operators: verify, doctor, copy, backup, retention."""
