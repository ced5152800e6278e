"""WHAT HAPPENED: the events, their encoding and the port behind which logs are kept. Pure: no I/O, no clock."""
