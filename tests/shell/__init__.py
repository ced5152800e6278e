"""Command lines: what a shell makes of them, and whether they edit files."""
