"""What a fresh agent knows: facts are planted with real coding agents, then the next agent's first request is read."""
