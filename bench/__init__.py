"""Benchmarks: ratios against a peer or a limit in the same run, never a test that depends on time."""
