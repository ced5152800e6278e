"""A draft that is sealed when it is first read is appended like any other, by every store."""

import pytest

from onrecord.errors import InvalidInput
from onrecord.log.codec import SealOnRead
from onrecord.testing import FakeClock
from onrecord.testing.tools import Workbench
from tests import stores


class Bench(Workbench):
    """A workbench on a store that is already there."""

    def __init__(self, store, clock):
        self.made_store = store
        self.setup_method()
        self.clock = clock

    def make_store(self):
        return self.made_store


@pytest.fixture(params=stores.EVERY)
def bench(request, tmp_path):
    clock = FakeClock()
    found = Bench(stores.timed_store(request.param, request, tmp_path, clock), clock)
    yield found
    found.teardown_method()


def test_a_draft_may_be_sealed_when_it_is_read(bench):
    """A draft is the same before and after sealing; one that cannot be sealed is refused, whatever else is wrong."""
    session = bench.open()
    late = SealOnRead(lambda: bench.draft("decision.made", {"text": "late"}))
    (receipt,) = bench.store.append(session, late)
    assert bench.store.append(session, late) == [receipt._replace(new=False)]
    assert bench.store.read(session)[-1].id == late[0].id
    large = SealOnRead(lambda: bench.draft("decision.made", {"text": "long " * 20_000}))
    assert bench.store.append(session, large)[0].position == receipt.position + 1
    assert bench.store.read(session)[-1].payload == large[0].payload
    with pytest.raises(InvalidInput):
        bench.store.append("no such session", SealOnRead(lambda: bench.draft("decision.made", {"text": "\ud800"})))
