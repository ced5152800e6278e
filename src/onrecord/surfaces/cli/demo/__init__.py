"""The demonstration: a worker is killed, its session is not."""
