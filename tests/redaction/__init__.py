"""What becomes of secrets on their way into a log."""
