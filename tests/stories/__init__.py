"""Scenarios in plain words, with the views they lead to."""
