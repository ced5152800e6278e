"""Many agents at once: the team file, their places (tmux panes or processes), supervision, files for other tools."""
