"""Teams: formed, supervised, killed, resumed and ended."""
