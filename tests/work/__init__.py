"""The worktree: anchors, surveys, and commands that really run."""
