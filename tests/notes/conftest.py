"""Sessions whose notes are looked at, in memory, on a clock that is turned by hand."""

from tests.phases.conftest import clock, records, session

__all__ = ["clock", "records", "session"]
