"""What remains after kill -9, torn writes and a full disk."""
