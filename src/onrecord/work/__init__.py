"""THE USER'S WORKTREE: which project this is."""
