"""Sessions for pictures and browser tests: a small project as it might be on an ordinary morning."""

import time
from typing import Any

from onrecord import machine
from onrecord.log.store import Store
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore

PROJECT = "shop-api"
MINUTE = 60.0
HOUR = 3_600.0


class Clock:
    """A clock that is set by hand."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


def gone() -> dict[str, Any]:
    """A process of this machine that has ended."""
    return machine.identity() | {"pid": 4_194_000, "started": "1"}


def fill(store: Store, until: float | None = None) -> SessionStore:
    """Every sample session, ending shortly before `until`."""
    now = time.time() if until is None else until
    clock = Clock(now - 5 * HOUR)
    records = SessionStore(store, project=PROJECT, clock=clock)
    for make in (invoice, limiter, search, migration, invite, theme, notes):
        make(records, clock, now)
    clock.now = now
    return records


def _say(
    session: Session, clock: Clock, asked: str, answer: str, *calls: tuple[str, dict[str, Any], str], cost: float = 0.05
) -> None:
    """A turn of a coding agent: what was asked, what its tools did, what it said."""
    items: list[dict[str, Any]] = [{"role": "user", "content": asked}] if asked else []
    for number, (name, arguments, result) in enumerate(calls):
        id_ = f"{session.agent}-{clock.now:.0f}-{number}"
        items.append(
            {"role": "assistant", "content": "", "tool_calls": [{"id": id_, "name": name, "arguments": arguments}]}
        )
        items.append({"role": "tool", "call": id_, "content": result})
    items.append({"role": "assistant", "content": answer})
    clock.pass_(MINUTE)
    with session.turn() as turn:
        for item in items:
            clock.pass_(3 * MINUTE / len(items))
            turn.add(item)
        session.budget.record_usage("claude-opus-5", input_tokens=12_400, output_tokens=1_830, cost=cost)
    clock.pass_(20)


def invite(records: SessionStore, clock: Clock, now: float) -> None:
    """The session of the README: an intermittent 403, two agents, a kill, a limit."""
    clock.now = now - 3 * HOUR
    records.create("fix-invite-403", objective="Fix intermittent 403 after invite acceptance")
    claude = records.get("fix-invite-403", agent="claude").acquire()
    claude.agents.locate("claude", "8d1f4a5e-11c2", branch="fix/invite", revision="4f2c9d01aa")
    claude.facts.set_reproduction("accept an invite, then GET /team at once", rate="3/10")
    _say(claude, clock, "Why is there a 403 after accepting an invite?", "I reproduce it first. **3 of 10** requests fail:\n\n- the invite is accepted\n- the first `GET /team` answers 403\n- the second one answers 200",
         ("Bash", {"command": "pytest -k invite --count 10"}, "FAILED tests/test_invite.py::test_team\n3 failed, 7 passed in 12.1s\nexit code 1"), cost=0.09)  # fmt: skip
    claude.evidence.record(
        "test", id="run-a", captured=True, command="pytest -k invite --count 10", text="3 failed, 7 passed"
    )
    attempt = claude.attempts.start("pytest -k invite --count 10")
    claude.attempts.settle(1, "failed", error="3 failed, 7 passed", metrics={"failed": 3})
    claude.findings.state(
        "Auth middleware caches a stale role", "rejected", evidence=["run-a"], because=attempt.position
    )
    _say(claude, clock, "Then look at the membership row.", "The row commits on the primary; the first request reads a replica.\n\n```python\ndef read_from(self):\n    # the replica may lag\n    return self.replica\n```",
         ("Read", {"file_path": "db/router.py"}, "\n".join(f"{n}  line of db/router.py" for n in range(1, 60))),
         ("Bash", {"command": "tools/trace-invite --compare"}, "primary  11:41:07.120  membership visible\nreplica  11:41:07.388  membership visible   +268 ms\nrequest  11:41:07.205  GET /team -> 403\nexit code 1"))  # fmt: skip
    claude.evidence.record("trace", id="trace-7", captured=True, text="membership visible 268 ms later on the replica")
    claude.findings.state("The 403 comes before the membership row is visible", "verified", evidence=["trace-7"])
    claude.decide("Reproduce before touching the middleware", why="two fixes failed")
    turn = claude.turn()
    clock.pass_(2 * MINUTE)
    turn.abort(
        "engine stopped answering",
        partial=[{"role": "assistant", "content": "Switching the router to the primary for"}],
    )
    clock.pass_(4 * MINUTE)
    claude.agents.record_interruption("killed", "kill -9")
    claude.leave()
    _second_day(records, clock, now)


def _second_day(records: SessionStore, clock: Clock, now: float) -> None:
    codex = records.get("fix-invite-403", agent="codex").acquire()
    codex.agents.locate("codex", "0199-aa31", branch="fix/invite")
    _say(codex, clock, "Continue from the note: read memberships from the primary after accept.", "Reading from the primary for five seconds after accept.",
         ("Edit", {"file_path": "db/router.py", "old_string": "    return self.replica", "new_string": "    if session.accepted_within(5):\n        return self.primary\n    return self.replica"}, "ok"),
         ("Bash", {"command": "pytest -k invite --count 10"}, "10 passed in 12.0s"), cost=0.06)  # fmt: skip
    for number, failed in ((2, 2), (3, 1), (4, 1), (5, 0), (6, 0)):
        codex.attempts.start(f"pytest -k invite --count {10 * number}")
        clock.pass_(2 * MINUTE)
        if failed:
            codex.attempts.settle(number, "failed", error=f"{failed} failed", metrics={"failed": failed})
        else:
            codex.attempts.settle(number, "succeeded", metrics={"failed": 0})
    anchors: Any = [{"path": "db/router.py", "fingerprint": "a" * 16, "revision": "4f2c9d01aa"}]
    codex.findings.state("Replica lag is below 200 ms", "verified", evidence=["trace-7"], anchors=anchors)
    codex.findings.state("Mobile client retries too early", "open")
    codex.decide("Read from the primary for five seconds after accept", because=10)
    codex.facts.set_next_action("Read memberships from the primary after accept", command="pytest -k invite --count 10")
    codex.leave()
    claude = records.get("fix-invite-403", agent="claude").acquire()
    _say(
        claude,
        clock,
        "Review the change.",
        "The change is right, and the test is stable now:\n\n| run | failed |\n|---|---|\n| 5 | 0 |\n| 6 | 0 |\n",
    )
    claude.agents.record_interruption("usage_window", "usage limit reached", resets_at=now + 2 * HOUR, vendor="claude")
    claude.leave()


def migration(records: SessionStore, clock: Clock, now: float) -> None:
    """An attempt whose process is gone."""
    clock.now = now - 9 * HOUR
    records.create("nightly-migration", objective="Move orders to the new schema")
    codex = records.get("nightly-migration", agent="codex").acquire()
    codex.agents.locate("codex", "0199-bb02")
    _say(codex, clock, "Run the migration over night.", "Started it; the first table takes about an hour.", cost=1.9)
    codex.attempts.start("python migrate.py --table orders", process=gone())
    codex.leave()


def theme(records: SessionStore, clock: Clock, now: float) -> None:
    """An agent that waits for a permission."""
    clock.now = now - 20 * MINUTE
    records.create("dark-mode", objective="Add a dark theme")
    claude = records.get("dark-mode", agent="claude")
    claude.agents.record_start(machine.identity(), via="hook")
    claude.agents.locate("claude", "77aa-0c1d")
    claude = records.get("dark-mode", agent="claude")
    claude.acquire()
    _say(claude, clock, "Add a dark theme to the settings page.", "I need a package for that.", cost=0.7)
    claude.agents.record_attention_needed("may I run npm install?")


def search(records: SessionStore, clock: Clock, now: float) -> None:
    """Findings that rest on changed code."""
    clock.now = now - 26 * HOUR
    records.create("flaky-search", objective="Search test fails on Mondays")
    gemini = records.get("flaky-search", agent="gemini").acquire()
    gemini.agents.locate("gemini", "g-51")
    _say(
        gemini,
        clock,
        "Find out why the search test fails on Mondays.",
        "The week starts on Sunday in one locale.",
        cost=0.21,
    )
    gemini.evidence.record("test", id="run-s", captured=True, command="pytest -k search", text="1 failed")
    anchors: Any = [{"path": "search/weeks.py", "fingerprint": "b" * 16, "revision": "77d0"}]
    gemini.findings.state("The week starts on Sunday", "verified", evidence=["run-s"], anchors=anchors)
    gemini.findings.state("The index is rebuilt too late", "verified", evidence=["run-s"], anchors=anchors)
    gemini.log.record(
        "code.changed", {"anchors": {"search/weeks.py": "c" * 16}, "revision": {"revision": "88e1", "branch": "main"}}
    )
    gemini.leave()


def notes(records: SessionStore, clock: Clock, now: float) -> None:
    """An agent at work."""
    clock.now = now - 30 * MINUTE
    records.create("release-notes", objective="Write the notes for 2.4")
    copilot = records.get("release-notes", agent="copilot").acquire()
    for number in range(1, 6):
        _say(copilot, clock, f"Write section {number}.", f"Section {number} is written.", cost=0.02)


def limiter(records: SessionStore, clock: Clock, now: float) -> None:
    """Paused by a person."""
    clock.now = now - 30 * HOUR
    records.create("rate-limiter", objective="Token bucket per tenant")
    claude = records.get("rate-limiter", agent="claude").acquire()
    _say(claude, clock, "Add a token bucket per tenant.", "Done; the limits are in the settings.", cost=1.31)
    claude.pause("tomorrow")


def invoice(records: SessionStore, clock: Clock, now: float) -> None:
    """Closed."""
    clock.now = now - 50 * HOUR
    records.create("invoice-rounding", objective="Fix rounding of invoices")
    claude = records.get("invoice-rounding", agent="claude").acquire()
    _say(claude, clock, "Invoices are off by a cent.", "Decimal instead of float; fixed by 77d0.", cost=3.02)
    claude.close("fixed by 77d0")
