"""THE USER'S WORKTREE: which project it is, fingerprints of its code, and running commands in it."""
