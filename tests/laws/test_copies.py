"""Laws of copies: a copy has the content of its log, copied all at once or bit by bit, forwards and back."""

from hypothesis import example, given
from hypothesis import strategies as st

from onrecord.session import copying
from onrecord.session.copying import Copier
from onrecord.session.handle import Session
from onrecord.stores.memory import MemoryStore
from tests.laws.play import Play, steps


def same(play: Play, target: MemoryStore) -> None:
    for head in play.store.heads(limit=1_000):
        copied = Session(target, head.session)
        assert target.read(head.session) == play.store.read(head.session)
        assert target.head(head.session) == head
        assert copied.verify().ok
        assert copied.head == head


def carry(play: Play, target: MemoryStore) -> None:
    for head in play.store.heads(limit=1_000):
        Copier(play.store, target).copy(head.session)


@given(steps, steps, st.integers(1, 7))
@example([], [("rename", "one"), ("erase", 1)], 1)
@example([("erase", 1)], [("rename", "one")], 1)
@example([], [("rename", "one"), ("erase", 2)], 1)
def test_a_copy_is_the_session(first, then, page):
    """Copied in the middle and again at the end, in pages of any size, a store has the same records and heads (A19)."""
    kept, copying.COPY_PAGE = copying.COPY_PAGE, page
    try:
        play, target = Play(), MemoryStore()
        play.run(first)
        carry(play, target)
        same(play, target)
        play.run(then)
        carry(play, target)
        same(play, target)
        back = MemoryStore()
        for head in target.heads(limit=1_000):
            Copier(target, back).copy(head.session)
        same(play, back)
    finally:
        copying.COPY_PAGE = kept
