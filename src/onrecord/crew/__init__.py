"""Many agents at once: the team file, their hosts (tmux panes or processes), supervision, files for other tools."""
