"""Phases, profiles and features: refusals, repairs, and what is on record."""
