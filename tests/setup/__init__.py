"""Setting up hooks in the files of agents, and taking them out again."""
