"""Our part in a user's files: hooks, instructions, plugins. Put in and taken out byte for byte."""
