"""Tokens: what a policy in training was given and what it answered, id by id, and the samples made of it."""
