"""Sessions for the tests of notes, in memory, on a clock that the test moves."""

from tests.phases.conftest import clock, records, session

__all__ = ["clock", "records", "session"]
