"""Our part in a user's files: hooks, instructions, plugins. Added and removed without changing another byte."""
