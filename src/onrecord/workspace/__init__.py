"""What onrecord keeps in the user's worktree: STATE.md and NOTE.md, rendered from the log, read back, kept in sync."""
