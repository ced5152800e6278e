"""Verbs for rollouts: the proxy, and samples for a trainer."""
