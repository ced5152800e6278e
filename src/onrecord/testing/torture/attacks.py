"""The twelve attacks. Each one fails with a sentence that says what happened to the store."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
from base64 import b64encode
from contextlib import contextmanager, suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from onrecord.errors import InvalidInput
from onrecord.testing.torture import children
from onrecord.testing.torture.driver import Turn, driver_class
from onrecord.testing.torture.tampering import flipped, poisoned, settle, size_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

SESSION = "tortured"
"""The session that is attacked: a name that every framework accepts."""
WAIT_SECONDS = 120.0
MARKER = "the quick brown fox jumps over the lazy dog"
LIST_SECONDS = 1.0
"""How long a list of the newest 50 sessions may take."""
LINEAR = 2.6
"""Twice as many turns may take so many times the bytes; a store that keeps all of it again each time takes four."""
OVERHEAD = 4.0
"""How many bytes a byte of text may take."""
PRESENT = 1_700_000_000.0

_UNSEEN = "the attack cannot be carried out: no call from Python into a database or a file is seen"


class Outcome(NamedTuple):
    """How one attack ended."""

    attack: str
    passed: bool
    said: str
    check: str = ""
    """How much of the damage the store's own check finds when it is asked; empty if it has none, or is not asked."""


class Lost(AssertionError):
    """The store did not survive the attack."""


class SessionStoreTorture:
    """Subclass it, name a driver as `module:Class`, and run it with pytest; or call `run`."""

    driver: str = ""
    LISTED: ClassVar[int] = 10_000
    """How many sessions there are in the list."""
    OPENERS: ClassVar[int] = 16
    GROWN: ClassVar[int] = 100
    """How many turns a session has before it is doubled."""
    FOUGHT: ClassVar[int] = 25
    """How many turns each of two writers writes."""
    ROUNDS: ClassVar[int] = 24
    """How many moments of a write are tried."""
    FLIPS: ClassVar[int] = 48
    """How many bits are flipped, one at a time, at the most."""

    def setup_method(self) -> None:
        """A directory for the store and its copies."""
        module = driver_class(self.driver).__module__
        self.place = Path(tempfile.mkdtemp(prefix="torture-"))
        self.directory = self.place / "store"
        self.directory.mkdir()
        self._check = ""
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["onrecord.testing.torture.children", module])

    def teardown_method(self) -> None:
        """Remove what is left."""
        shutil.rmtree(self.place, ignore_errors=True)

    @classmethod
    def run(cls, attacks: Iterable[str] = ()) -> list[Outcome]:
        """Run every attack, or some, and say how each one ended."""
        chosen = list(attacks) or ATTACKS
        if unknown := next((name for name in chosen if name not in ATTACKS), None):
            raise InvalidInput(f"there is no attack {unknown!r}", hint=f"the attacks are {', '.join(ATTACKS)}")
        return [cls().one(name) for name in chosen]

    def one(self, name: str) -> Outcome:
        """Run one attack, and say how it ended."""
        self.setup_method()
        said = ""
        try:
            getattr(self, f"test_{name}")()
        except NotImplementedError as missing:
            said = f"no interface for it{f': {missing}' if str(missing) else ''}"
        except Lost as lost:
            said = str(lost)
        except Exception as problem:  # noqa: BLE001  # an attack that cannot be carried out is an outcome too
            said = f"{type(problem).__name__}: {problem}"[:300]
        finally:
            self.teardown_method()
        return Outcome(name, passed=not said, said=said, check=self._check)

    # The attacks

    def test_crash_inside_a_tool(self) -> None:
        """The process dies while a tool runs: the tool is not run twice, and the next model knows of it."""
        self._crash("inside")

    def test_crash_between_tool_and_save(self) -> None:
        """The process dies after the tool, before the store has it: not run twice, and not forgotten."""
        self._crash("after")

    def test_two_writers(self) -> None:
        """Two processes write the same session: each turn is whole and in one piece, or refused with an error."""
        self._write([turn("first")])
        start = self._context.Barrier(2)
        ours = [[turn(f"{who}{number}") for number in range(self.FOUGHT)] for who in "ab"]
        fights = [self._start(children.fight, start, *self._where(), turns) for turns in ours]
        saved: list[str] = []
        for child, pipe in fights:
            kept, refused = self._said(pipe)
            saved += kept
            if not kept and not refused:
                raise Lost("a writer neither saved nor was refused")
            child.join(WAIT_SECONDS)
        texts = self._read()
        for key in ["first", *saved]:
            whole = list(turn(key).texts)
            found = [index for index, text in enumerate(texts) if text in whole]
            if not found:
                raise Lost(f"turn {key} was saved without an error and is gone; {len(saved)} were saved")
            if texts[found[0] : found[0] + len(whole)] != whole or len(found) != len(whole):
                raise Lost(f"turn {key} is mixed with the other writer's, or stored in part")
        extra = {text.partition(":")[0] for text in texts} - {"first", *saved}
        if extra:
            raise Lost(f"turns that were refused are there all the same: {', '.join(sorted(extra))}")

    def test_clocks(self) -> None:
        """A clock that stops, and one that goes back: the order is the order of writing."""
        keys = [f"t{number}" for number in range(12)]
        for number, clock in enumerate([PRESENT, PRESENT, PRESENT - 3_600, PRESENT - 7_200]):
            self._write([turn(key) for key in keys[number * 3 : number * 3 + 3]], clock=clock)
        self._expect(keys, "after a clock that stopped and went back")

    def test_retry(self) -> None:
        """A reply is lost and the turn is saved again under the same key: it is there once."""
        self._write([turn("a"), turn("b")])
        with suppress(Lost):  # to refuse what is already there is right as well
            self._write([turn("b")])
        self._write([turn("c")])
        self._expect(["a", "b", "c"], "after a retry")

    def test_growth(self) -> None:
        """The bytes grow with what was said, not with its square."""
        sizes, turns = [], [noise(number) for number in range(self.GROWN * 2 + 1)]
        for part in (turns[:1], turns[1 : self.GROWN + 1], turns[self.GROWN + 1 :]):
            self._write(part)
            sizes.append(size_of(self.directory))
        said = sum(len(text) for one in turns[1:] for text in one.texts)
        half, whole = sizes[1] - sizes[0], sizes[2] - sizes[0]
        if whole > LINEAR * half or whole > OVERHEAD * said:
            raise Lost(
                f"{said:,} bytes of text take {whole:,} bytes ({whole / said:.1f} times as much); "
                f"twice the turns take {whole / half:.1f} times the bytes"
            )

    def test_list(self) -> None:
        """Of many sessions the newest are listed quickly."""
        driver = driver_class(self.driver)(str(self.directory))
        driver.sessions(1)  # a store that cannot list says so before ten thousand sessions are made
        names = [f"s{number:05}" for number in range(self.LISTED)]
        driver.fill(names)
        driver.close()
        _child, pipe = self._start(children.listed, self.driver, str(self.directory), 50)
        found, took = self._said(pipe)
        if names[-1] not in found or len(found) < min(50, self.LISTED):
            raise Lost(f"the newest of {self.LISTED:,} sessions are not in the list of {len(found)}")
        if took > LIST_SECONDS:
            raise Lost(f"listing took {took:.1f} s with {self.LISTED:,} sessions")

    def test_cancellation(self) -> None:
        """A write is cancelled in the middle and done again: the turn is there once."""
        turns = [turn(f"t{number}") for number in range(20)]
        _child, pipe = self._start(children.cancel, *self._where(), turns)
        self._said(pipe)
        self._expect([one.key for one in turns], "after cancelled writes")

    def test_first_open(self) -> None:
        """Sixteen processes open a store that does not exist yet, at the same time: all of them can write."""
        start = self._context.Barrier(self.OPENERS)
        where = partial(self._start, children.open_first, start, self.driver, str(self.directory))
        pipes = [where(f"s{number}", turn(f"p{number}"))[1] for number in range(self.OPENERS)]
        problems = [said for pipe in pipes if (said := self._said(pipe))]
        if problems:
            raise Lost(f"{len(problems)} of {self.OPENERS} failed: {problems[0]}")
        found = self._read(*(f"s{number}" for number in range(self.OPENERS)))
        missing = [text for number in range(self.OPENERS) for text in turn(f"p{number}").texts if text not in found]
        if missing:
            raise Lost(f"{len(missing)} messages are missing after the first open")

    def test_poison(self) -> None:
        """Stored bytes are replaced by ones that name a command: it does not run, and the damage is noticed."""
        self._write([Turn("a", (MARKER, MARKER[::-1])), turn("b")])
        checks, found = self._has_check(), 0
        canary = self.place / "canary"
        bombs = driver_class(self.driver).bombs(f"touch {canary}")
        unnoticed: list[str] | None = None
        for number, bomb in enumerate(bombs):
            copy = poisoned(self.directory, self.place / f"copy{number}", MARKER, bomb)
            texts = self._read_damaged(copy)
            unnoticed = texts if unnoticed is None else unnoticed
            found += checks and self._check_finds(copy)
        self._check = f"{found} of {len(bombs)}" if checks else ""
        if canary.exists():
            raise Lost("reading ran a command that was in the stored bytes")
        if unnoticed is not None:
            raise Lost(f"the damage went unnoticed: {len(unnoticed)} of 5 messages were read without an error")

    def test_flipped_bit(self) -> None:
        """One bit of the stored text is flipped: reading gives the same text or an error, never another text."""
        long = "".join(noise(number).texts[0] for number in range(64))
        self._write([Turn("a", (MARKER * 20, long)), turn("b")])
        written = self._read()
        checks, found, harmed, wrong = self._has_check(), 0, 0, 0
        settle(self.directory)
        for copy in flipped(self.directory, self.place / "copies", MARKER, self.FLIPS):
            texts = self._read_damaged(copy)
            if texts == written:
                continue  # nothing that is read was hit
            harmed += 1
            wrong += texts is not None
            found += checks and self._check_finds(copy)
        self._check = f"{found} of {harmed}" if checks else ""
        if wrong:
            raise Lost(f"{wrong} flipped bits changed what is read, and no error said so")

    def test_killed_in_a_write(self) -> None:
        """The process is killed at each step of a write: what was saved is there, and no turn is there in part."""
        keys: list[str] = []
        _child, pipe = self._start(children.count_calls, *self._where(), [turn("c0"), turn("c1")])
        with _while("writing failed"):
            calls = self._said(pipe)
        if not calls:
            raise Lost(f"{_UNSEEN} in a write")
        steps = sorted({1 + number * calls // self.ROUNDS for number in range(self.ROUNDS)})
        for step in steps:
            turns = [turn(f"k{step}"), turn(f"d{step}")]
            child, pipe = self._start(children.write_and_die, *self._where(), turns, step)
            with _while("writing failed after a kill"):
                keys += self._saved(pipe)
            child.join(WAIT_SECONDS)
        texts = self._read()
        for key in keys:
            if any(text not in texts for text in turn(key).texts):
                raise Lost(f"turn {key} was saved, and is gone or cut after a kill")
        for step in steps:
            there = [text in texts for text in turn(f"d{step}").texts]
            if any(there) and not all(there):
                raise Lost(f"a write that was killed left {sum(there)} of {len(there)} messages of its turn")

    # How they are carried out

    def _crash(self, dies: str) -> None:
        ledger = self.place / "payments"
        child, pipe = self._start(children.work, *self._where(), str(ledger), dies)
        child.join(WAIT_SECONDS)
        if not ledger.exists():
            with _while("the agent did not call its tool"):
                raise Lost(self._said(pipe))
        with _while("the agent failed"):
            finished = self._saved(pipe)
        if finished:
            raise Lost(f"{_UNSEEN} after the tool")
        _child, pipe = self._start(children.go_on, *self._where(), str(ledger))
        with _while("it cannot be continued"):
            knows = self._said(pipe)
        times = len(ledger.read_text().splitlines())
        if times > 1:
            raise Lost(f"the tool ran {times} times")
        if not knows:
            raise Lost("the next model cannot read that the tool was called")

    def _where(self) -> tuple[str, str, str]:
        return self.driver, str(self.directory), SESSION

    def _start(self, target: Callable[..., None], *arguments: Any) -> tuple[Any, Any]:
        """Run something in a process of its own; the process, and where it reports."""
        ours, theirs = self._context.Pipe(duplex=False)
        child = self._context.Process(target=children.reporting, args=(theirs, target, *arguments))
        child.start()
        theirs.close()
        return child, ours

    def _said(self, pipe: Any) -> Any:
        if not pipe.poll(WAIT_SECONDS):
            raise Lost(f"no answer within {WAIT_SECONDS:g} s")
        try:
            return _answer(pipe.recv())
        except EOFError:
            raise Lost("the process ended without an answer") from None

    def _saved(self, pipe: Any) -> list[str]:
        """What a process reported before it was killed."""
        said: list[str] = []
        with suppress(EOFError):
            while pipe.poll(WAIT_SECONDS):
                said.append(_answer(pipe.recv()))
        return said

    def _write(self, turns: list[Turn], clock: float | None = None) -> None:
        _child, pipe = self._start(children.write, *self._where(), turns, clock)
        with _while("writing failed"):
            while self._said(pipe) != "done":
                continue

    def _read(self, *sessions: str) -> list[str]:
        _child, pipe = self._start(children.read, self.driver, str(self.directory), *(sessions or (SESSION,)))
        with _while("reading failed"):
            found: list[str] = self._said(pipe)
        return found

    def _read_damaged(self, copy: Path) -> list[str] | None:
        """What is read from a damaged copy; None if an error says that something is wrong."""
        _child, pipe = self._start(children.read, self.driver, str(copy), SESSION)
        try:
            found: list[str] = self._said(pipe)
        except Lost:
            return None
        return found

    def _has_check(self) -> bool:
        """Whether the store has a check of its own; one that finds damage in a store without any is worth nothing."""
        _child, pipe = self._start(children.check, self.driver, str(self.directory))
        with _while("its own check failed"):
            sound = self._said(pipe)
        if sound is False:
            raise Lost("its own check finds damage where there is none")
        return sound is not None

    def _check_finds(self, copy: Path) -> bool:
        """Whether the store's own check finds the damage, by its answer or by an error."""
        _child, pipe = self._start(children.check, self.driver, str(copy))
        try:
            return self._said(pipe) is False
        except Lost:
            return True

    def _expect(self, keys: list[str], when: str) -> None:
        texts = self._read()
        wanted = [text for key in keys for text in turn(key).texts]
        if texts == wanted:
            return
        missing, extra = len(set(wanted) - set(texts)), len(texts) - len(set(texts))
        if missing or extra:
            raise Lost(f"{missing} of {len(wanted)} messages are missing and {extra} are doubled {when}")
        raise Lost(f"the messages are in another order {when}")


def _answer(said: Any) -> Any:
    """What a child reported; an error if that is what it reported."""
    if children.is_missing(said):
        raise NotImplementedError(said[1:])
    if children.is_problem(said):
        raise Lost(said[1:])
    return said


@contextmanager
def _while(doing: str) -> Iterator[None]:
    """Say what was lost while something was done."""
    try:
        yield
    except Lost as lost:
        raise Lost(f"{doing}: {lost}") from None


def turn(key: str) -> Turn:
    """A turn of three messages that differs from all others."""
    return Turn(key, tuple(f"{key}: {part}" for part in ("asked", "thought", "said")))


def noise(number: int) -> Turn:
    """A turn of two messages of a thousand bytes that cannot be compressed; the same in every run."""
    digests = (sha256(f"{number}.{part}".encode()).digest() for part in range(48))
    text = b64encode(b"".join(digests)).decode()
    return Turn(f"n{number}", (text[:1_000], text[1_000:2_000]))


ATTACKS = (
    "crash_inside_a_tool", "crash_between_tool_and_save", "two_writers", "clocks", "retry", "growth", "list",
    "cancellation", "first_open", "poison", "flipped_bit", "killed_in_a_write",
)  # fmt: skip
"""The attacks, in the order of the table in docs/torture.md."""
