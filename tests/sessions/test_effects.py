"""Effects: a side effect happens once, ever; one with an unknown outcome is reported as unknown."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from onrecord.errors import Conflict, EffectUnknown, InvalidInput, PayloadErased


class Bank:
    """Something that must not happen twice."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.charged = 0

    def charge(self):
        self.charged += 1
        answer = self.answers.pop(0) if self.answers else {"paid": self.charged}
        if isinstance(answer, BaseException):
            raise answer
        return answer


def test_once_is_once_ever(session, records):
    """The first call runs; every later one, in this handle or another, returns the recorded result."""
    bank = Bank({"paid": 42, "list": (1, 2)})
    first = session.once("charge-card-17", bank.charge)
    assert first == {"paid": 42, "list": [1, 2]}
    assert session.once("charge-card-17", bank.charge) == first
    session.leave()
    later = records.open("fix-invite-403")
    assert later.once("charge-card-17", bank.charge) == first
    assert bank.charged == 1
    kinds = [event.kind for event in session.events(kinds=["effect.started", "effect.finished"])]
    assert kinds == ["effect.started", "effect.finished"]
    assert later.once("charge-card-18", bank.charge) == {"paid": 2}


def test_what_fails_may_be_tried_again(session):
    """A failure is recorded with its text and raised; the next call tries again; a success is never repeated."""
    bank = Bank(OSError("no route to b\udcffnk"), ValueError("card refused"), "ok")
    for problem in (OSError, ValueError):
        with pytest.raises(problem):
            session.once("charge", bank.charge)
    assert session.once("charge", bank.charge) == session.once("charge", bank.charge) == "ok"
    assert bank.charged == 3
    ends = [event.data for event in session.events(kinds=["effect.finished"])]
    assert [end["ok"] for end in ends] == [False, False, True]
    assert ends[0]["error"] == "OSError: no route to b\\udcffnk"
    assert ends[1]["error"] == "ValueError: card refused"


@pytest.mark.parametrize("struck", [KeyboardInterrupt(), SystemExit(1)])
def test_what_was_cut_off_is_unknown(session, struck):
    """An interrupted effect (Ctrl-C, exit) may have happened: it stays unknown and is not run again."""
    bank = Bank(struck)
    with pytest.raises(type(struck)):
        session.once("charge", bank.charge)
    with pytest.raises(EffectUnknown) as refusal:
        session.once("charge", bank.charge)
    assert "may have happened" in refusal.value.message
    assert bank.charged == 1
    assert session.once("charge", bank.charge, rerun_unknown=True) == {"paid": 2}


def test_a_result_that_is_no_json_is_not_a_failure(session):
    """An effect with a result that cannot be recorded has still happened: it is not run again, and the error says why."""
    bank = Bank(object())
    for _ in range(2):
        with pytest.raises(InvalidInput):
            session.once("charge", bank.charge)
    assert bank.charged == 1
    assert session.views.effects.unfinished == {}


def test_the_ledger_is_kept_step_by_step(session):
    """An effect is recorded before and after it runs, each durably; success and failure are reported (T01)."""
    started = session.effects.start("mail-1", "send_mail", {"to": "ada"})
    assert started.data == {"key": "mail-1", "name": "send_mail", "arguments": {"to": "ada"}}
    assert set(session.views.effects.unfinished) == {"mail-1"}
    assert session.effects.unknown() == {}
    with pytest.raises(EffectUnknown):
        session.effects.start("mail-1")
    session.effects.settle("mail-1", error="mailbox full")
    session.effects.start("mail-1")
    session.effects.settle("mail-1", result="sent")
    with pytest.raises(Conflict):
        session.effects.settle("mail-1", result="sent again")
    with pytest.raises(Conflict, match="already happened"):
        session.effects.start("mail-1")
    with pytest.raises(Conflict):
        session.effects.settle("never-started")
    assert session.once("mail-1", lambda: pytest.fail("it ran")) == "sent"


@pytest.mark.parametrize("ending", ["leave", "pause", "takeover"])
def test_what_a_run_left_unfinished_is_unknown_afterwards(records, ending):
    """An effect that was running when its agent left, paused or lost its lane is reported, not dropped (T01)."""
    session = records.open("work")
    session.effects.start("deploy")
    {"leave": session.leave, "pause": session.pause, "takeover": lambda: records.open("work", takeover=True)}[ending]()
    looking = records.get("work")
    assert set(looking.effects.unknown()) == {"deploy"}
    assert "effect deploy was started" in looking.brief()
    session.effects.settle("deploy", result="it had gone through")
    assert looking.refresh().effects.unknown() == {}


@pytest.mark.parametrize("threads", [2, 16])
def test_threads_that_want_the_same_run_it_once(session, threads):
    """However many threads ask for an effect at the same moment, one runs it; the others get its result or an error."""
    bank, start = Bank(), Barrier(threads)

    def ask(_number: int) -> object:
        start.wait()
        try:
            return session.once("charge", bank.charge)
        except EffectUnknown:
            return None

    with ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(ask, range(threads)))
    assert bank.charged == 1
    assert {"paid": 1} in answers
    assert all(answer in (None, {"paid": 1}) for answer in answers)


def test_agents_that_want_the_same_run_it_once(records):
    """Two agents of one session share its effects: neither starts an effect that the other has started."""
    main, tester = records.open("work"), records.open("work", agent="tester")
    bank = Bank()

    def meanwhile() -> object:
        with pytest.raises(EffectUnknown):
            tester.once("charge", bank.charge)
        return bank.charge()

    assert main.once("charge", meanwhile) == {"paid": 1}
    assert tester.once("charge", bank.charge) == {"paid": 1}
    assert bank.charged == 1


def test_an_erased_result_is_not_a_reason_to_run_again(session):
    """When the outcome was erased, the effect counts as done, and asking for its result says that it is erased (K09)."""
    bank = Bank()
    session.once("charge", bank.charge)
    session.log.erase(
        "secret", positions=[event.position for event in session.events(kinds=["effect.started", "effect.finished"])]
    )
    with pytest.raises(PayloadErased):
        session.once("charge", bank.charge)
    assert bank.charged == 1
    assert session.effects.unknown() == {}


@pytest.mark.parametrize("key", ["", "x" * 129, "a\nb", None, 7, "\ud800"])
def test_keys_are_short_and_printable(session, key):
    """A key names an effect for ever: it is short and printable; any other key is refused before anything runs."""
    bank, before = Bank(), session.head
    for call in (
        lambda: session.once(key, bank.charge),
        lambda: session.effects.start(key),
        lambda: session.effects.settle(key),
    ):
        with pytest.raises(InvalidInput):
            call()
    assert bank.charged == 0
    assert session.refresh().head == before


@pytest.mark.parametrize("key", ["a/b", "started", "effect/1/started/x", "ключ", "1", "k" * 128])
def test_any_key_is_its_own(session, key):
    """No key is mistaken for another one, whatever it looks like."""
    assert session.once(key, lambda: key) == key
    assert session.once(key + "2" if len(key) < 128 else "other", lambda: "other") == "other"
    assert session.once(key, lambda: pytest.fail("it ran")) == key
