"""Verbs for the work itself: attempts, findings, evidence, phases, notes, the gate."""
