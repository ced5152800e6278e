"""Command lines: what a shell makes of one, and whether it edits files. Pure: nothing is run."""

CERTAIN, LIKELY, UNSEEN = "certain", "likely", ""
"""How certain it is that a command line edits files of the worktree."""
