"""WHERE PEOPLE AND AGENTS MEET IT: the command line. Surfaces print and map errors; nothing else does."""
