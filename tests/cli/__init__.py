"""The command as a user runs it: output, exit status, hints."""
