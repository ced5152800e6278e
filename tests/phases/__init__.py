"""Phases, profiles and features: refusals, repairs, and what they leave on record."""
