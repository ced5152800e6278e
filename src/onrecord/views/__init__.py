"""WHAT IT MEANS: pure functions that fold events into values. No I/O, no clock; time is an argument."""
