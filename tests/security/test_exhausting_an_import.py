"""An attacker wants a small bundle to fill the memory, to take for ever, or to leave a store that lists no session."""

import json
import time
import tracemalloc
from hashlib import sha256
from typing import Any

import pytest

import onrecord
from onrecord.errors import DamagedBundle
from onrecord.log import codec
from onrecord.log.ranges import Ranges
from onrecord.session import bundle, unpacking
from onrecord.surfaces.cli.sessions.bundles import BundleFile
from tests.security.conftest import packed


def rewritten(lines: list[str], change: Any, heading: Any = None) -> list[str]:
    """A bundle whose events were changed, with the chain and the end computed again: only its content is wrong."""
    head = json.loads(lines[0])
    body, before = [unpacking.line_of((heading or (lambda value: value))(head))], codec.GENESIS
    for line in lines[1:-1]:
        value = change(json.loads(line))
        header = tuple(value[name] for name in unpacking.TYPES)
        if "payload" in value:
            value["payload_hash"] = codec.commit_to(bytes.fromhex(value["salt"]), value["payload"].encode()).hex()
        before = codec.link(before, header, bytes.fromhex(value["payload_hash"]))
        value["hash"] = before.hex()
        body.append(unpacking.line_of(value))
    return [*body, unpacking.end_line(sha256("".join(body).encode()).hexdigest(), len(body) - 1, before)]


@pytest.fixture
def lines(elsewhere):
    session = elsewhere.create("gift")
    session.log.record("note.kept", {"text": "x"})
    return list(bundle.lines_of(session))


def second(**fields: Any) -> Any:
    """Changes the second event."""
    return lambda value: value | (fields if value["position"] == 2 else {})


HOSTILE = {
    "a moment that no calendar has": second(at=10**18), "a negative moment": second(at=-(10**18)),
    "a kind of 100 KB": second(kind="k" * 100_000), "an actor of 100 KB": second(by="b" * 100_000),
    "an id with an escape": second(id="\x1b[31m"), "a number that is not finite": second(payload='{"text":NaN}'),
    "keys out of order": second(payload='{"text":1,"a":2}'), "spaces": second(payload='{"text": 1}'),
    "a key twice": second(payload='{"text":1,"text":2}'), "deep nesting": second(payload="[" * 5_000 + "]" * 5_000),
    "a number of 5,000 digits": second(payload='{"text":' + "1" * 5_000 + "}"), "version 0": second(v=0),
    "a run that no column holds": second(run=2**70), "a position as cause that no column holds": second(because=2**70),
    "a known kind with a list": second(kind="decision.made", payload="[1]"),
}  # fmt: skip


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_bundle_that_keeps_no_promise_is_refused_before_the_first_write(lines, change):
    """A chain proves that nothing was changed, not that a log may contain it: each value is refused, nothing is written."""
    with onrecord.connect("memory:") as here:
        with pytest.raises(DamagedBundle):
            bundle.take_in(here, rewritten(lines, change))
        assert here.sessions(project="") == []
        assert bundle.take_in(here, rewritten(lines, second())).verify().ok, (
            "the control: rewritten, and otherwise the same"
        )


@pytest.mark.parametrize("upto", [10**12, -1, 1.5, "2", None, True])
def test_a_heading_cannot_make_work(lines, upto):
    """A heading that promises any number of events costs nothing; it does not match, so the bundle is refused."""

    def change(value: dict[str, Any]) -> dict[str, Any]:
        return value | {"lineage": [{"session": value["session"], "upto": upto}]}

    with onrecord.connect("memory:") as here, pytest.raises(DamagedBundle):
        bundle.take_in(here, rewritten(lines, second(), change))


def test_a_bomb_is_refused_within_bounded_memory(lines, tmp_path):
    """A small file that unpacks to 200 MB of events is refused while only one line at a time is in memory."""
    row = json.loads(lines[2]) | {"payload": json.dumps({"text": "x" * 1_000_000}, separators=(",", ":"))}
    bomb = packed([*lines[:2], *[unpacking.line_of(row)] * 200], tmp_path / "bomb.onrecord")
    assert bomb.stat().st_size < 100_000
    tracemalloc.start()
    try:
        with onrecord.connect("memory:") as here, pytest.raises(DamagedBundle):
            bundle.take_in(here, BundleFile(bomb))
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


def test_many_sound_events_are_not_kept_in_memory(elsewhere, tmp_path, monkeypatch):
    """Importing 40 MB of sound events takes a fraction of that: they are checked, then written page by page."""
    session = elsewhere.create("large")
    for number in range(40):
        session.log.record("note.kept", {"text": f"{number}" + "x" * 1_000_000})
    file = packed(list(bundle.lines_of(session)), tmp_path / "large.onrecord")
    monkeypatch.setattr(bundle, "INSTALL_BYTES", 1_000_000)
    monkeypatch.setattr(bundle, "COPY_PAGE", 5)
    with onrecord.connect(f"sqlite:///{tmp_path}/here.db") as here:
        tracemalloc.start()
        try:
            moved = bundle.take_in(here, BundleFile(file))
            assert tracemalloc.get_traced_memory()[1] < 30_000_000
        finally:
            tracemalloc.stop()
        assert (moved.verify().events, moved.log.arrived()) == (41, 41)


def test_erasures_that_repeat_themselves_cost_nothing():
    """A thousand erasures of the same million positions take no time; what they name is still known."""
    begun, ranges = time.process_time(), Ranges()
    for _again in range(1_000):
        ranges.add(1, 1_000_000)
    ranges.add(1_000_002, 1_000_003)
    assert time.process_time() - begun < 0.5
    assert [position in ranges for position in (0, 1, 1_000_000, 1_000_001, 1_000_003)] == [
        False,
        True,
        True,
        False,
        True,
    ]


def test_a_torn_transcript_is_read_in_bounded_time():
    """A line of 2 MB with 300 beginnings around one long list without an end is given up in time; a whole record after a torn piece is found."""
    from onrecord.vendors.jsonl import records_of

    begun = time.process_time()
    found, torn = records_of(b'x{"a":[' + b'{"a":[' * 300 + b"1," * 1_000_000, lambda _record: True)
    assert (found, torn) == ([], 1)
    assert time.process_time() - begun < 4
    found, torn = records_of(b'{"torn": "in the mid{"type": "user"}', lambda record: "type" in record)
    assert ([one.record for one in found], torn) == ([{"type": "user"}], 1), "the control"
