"""Attacks, named after what an attacker wants. Each has a control: the same step without the attack works."""
