"""Agents as people run them: real processes that behave like a vendor's program, wrapped, killed and resumed."""
