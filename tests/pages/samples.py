"""One session with everything a page shows, and events made by hand with whatever text a test wants."""

from collections.abc import Sequence
from typing import Any

from onrecord.log.events import KINDS, Event
from onrecord.log.item_values import ToolCall
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore
from onrecord.testing import FakeClock

NAME = "fix-invite-403"
OLD = "def read_from(self, session):\n    return self.replica\n"
NEW = "def read_from(self, session):\n    if session.accepted_within(5):\n        return self.primary\n    return self.replica\n"
USED: Any = {"model": "opus", "input_tokens": 14_000, "output_tokens": 200, "cost": 0.09}


def call(id_: str, name: str, arguments: Any) -> ToolCall:
    return {"id": id_, "name": name, "arguments": arguments}


def sample() -> Session:
    """A session of two agents: turns of every state, tools, findings, attempts, a limit, a hand-over, a compaction."""
    clock = FakeClock()
    records = SessionStore(MemoryStore(), project="shop-api", clock=clock)
    one = records.open(NAME, agent="claude", objective="Fix intermittent 403 after invite acceptance")
    one.facts.set_reproduction("accept an invite, then GET /team", rate="3 of 10")
    clock.advance(60)
    one.record_turn(
        [
            {"role": "user", "content": "Find out **why**, then fix it."},
            {
                "role": "assistant",
                "content": "I will reproduce it first.\n\n- run `pytest`\n- read the router",
                "tool_calls": [call("c1", "Bash", {"command": "pytest -k invite"}), call("c2", "Read", {"file_path": "db/router.py"})],
            },
            {"role": "tool", "call": "c1", "content": "Exit code 1\n\x1b[31m3 failed\x1b[0m", "error": True},
            {"role": "tool", "call": "c2", "content": "one\ntwo\nthree"},
            {"role": "assistant", "content": "Reproduced."},
        ],
        usage=USED,
    )  # fmt: skip
    one.attempts.start("pytest -k invite")
    one.attempts.settle(1, "failed", exit_code=1, error="3 failed", seconds=4.1, metrics={"failures": 3})
    one.evidence.record(
        "trace", id="trace-7", captured=True, command="tools/trace", exit_code=0, output="replica +268 ms"
    )
    one.findings.state("The row is not visible yet", "verified", evidence=["trace-7"])
    one.findings.state("A stale role is cached", "rejected", evidence=["trace-7"])
    one.findings.state("The client retries too early", "open")
    clock.advance(60)
    try:
        with one.turn() as turn:
            turn.add({"role": "assistant", "content": "Switching the router to"})
            raise RuntimeError("engine stopped answering")
    except RuntimeError:
        pass
    clock.advance(60)
    one.record_turn([
        {"role": "user", "content": "Continue."},
        {"role": "assistant", "thinking": True, "content": "The replica lags."},
        {"role": "assistant", "content": "Reading from the primary.",
         "tool_calls": [call("c3", "Edit", {"file_path": "db/router.py", "old_string": OLD, "new_string": NEW})]},
        {"role": "tool", "call": "c3", "content": "updated"},
    ])  # fmt: skip
    one.attempts.start("pytest -k invite")
    one.attempts.settle(2, "succeeded", exit_code=0, seconds=3.9, metrics={"failures": 0})
    one.decide("Read from the primary for five seconds", why="the replica lags", because=8)
    one.findings.relabel("f3", "rejected", evidence=["trace-7"], why="it does not retry")
    one.facts.set_next_action("Deploy it", command="make deploy")
    one.agents.record_interruption("usage_limit", message="usage window", resets_at=clock() + 7_200)
    one.leave()
    clock.advance(3_600)
    two = records.open(NAME, agent="codex")
    two.record_turn([
        {"role": "user", "content": "Take over."},
        {"role": "assistant", "content": "", "tool_calls": [call("d1", "shell", {"command": ["bash", "-lc", "git diff"]})]},
        {"role": "tool", "call": "d1", "content": " db/router.py | 3 ++-"},
        {"role": "assistant", "content": "It is fine."},
    ])  # fmt: skip
    two.findings.challenge("f2", "the cache was empty", evidence=["trace-7"])
    rests = {"claim": "The router reads the replica", "label": "verified", "evidence": ["trace-7"]}
    two.log.record("finding.stated", rests | {"anchors": [{"path": "db/router.py", "fingerprint": "1"}]})
    two.findings.record_milestone("root_cause", finding="f4")
    two.log.record("code.changed", {"anchors": {"db/router.py": "2"}})
    two.evidence.record("run", id="later", captured=True, command="make", exit_code=0)
    two.findings.record_milestone("fix", finding="f4", evidence=["later"])
    two.compact("Claude found the lag.")
    two.attempts.start("make deploy")
    two.leave()
    return two


def event(kind: str, data: Any, position: int = 1, by: str = "claude") -> Event:
    """An event as a log has it."""
    return Event(
        "s", position, f"id/{position}", kind, 1, 1_794_820_320_000_000 + position, by, 1, None, data, b"p", b"h" * 32
    )


_words = str.split
FIELDS = _words(
    "name project objective reason cause message text why claim label finding argument command signature error fix key value "
    "section steps rate scenario phase profile what evidence id kind captured output excerpt url path reference summary "
    "upto tool act paths exit_code seconds metrics outcome attempt decision ground vendor vendor_id agent mode team group "
    "size limits model digest options part ids item items reading lines prompt feature passes anchors commits parent "
    "resets_at until count scope"
)  # fmt: skip
"""Every field that a payload may have on a page."""


def hostile(value: Any) -> list[Event]:
    """An event of every kind whose every field has this value."""
    needed: Sequence[str] = [name for kind in KINDS.values() for name in kind.needs.split()]
    data = dict.fromkeys([*FIELDS, *needed], value)
    return [event(kind, dict(data), number) for number, kind in enumerate(KINDS, start=1)]
