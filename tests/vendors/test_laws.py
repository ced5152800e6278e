"""Transcripts cut at any byte, with lines garbled and glued: reading never fails and never loses a whole record."""

import json
import re
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onrecord.agents import reading
from onrecord.vendors import jsonl
from onrecord.vendors.port import Chunk, Entry, Location, Mark, vendor
from tests.laws.values import hostile_texts, json_objects
from tests.vendors.homes import DATA

FILES = {
    "claude": "claude/projects/-home-dev-claude-tui/aaaaaaaa-0000-4000-8000-00000000000c.jsonl",
    "codex": "codex/sessions/2026/11/15/rollout-2026-11-15T06-37-23-01a1ddec-c0d9-7a73-853b-ba3dbe01a3a6.jsonl",
    "gemini": "gemini/tmp/k/chats/session-2026-11-15T06-51-7777777c.jsonl",
    "copilot": "copilot/session-state/1cb916db-26aa-40f2-86b5-1ba81b225f0b/events.jsonl",
    "qwen": "qwen/projects/-home-dev-qwen-proj/chats/55555555-bbbb-4333-8444-555555555555.jsonl",
}
BODIES = {name: (DATA / path).read_bytes() for name, path in FILES.items()}

whole_lines = st.builds(
    lambda about, said: json.dumps(about | {"type": "x", "said": said}), json_objects, hostile_texts
).map(str.encode)
broken_lines = st.one_of(
    st.binary(max_size=60).map(lambda noise: noise.replace(b"\n", b"")),
    whole_lines.flatmap(lambda line: st.integers(0, len(line) - 1).map(lambda at: line[:at])),
)


def translated(found: jsonl.Found) -> Entry:
    return Entry(found.raw, "x")


def read(path: Path, mark: Mark | None = None, limit: int = 1 << 30) -> Chunk:
    return jsonl.read(str(path), mark, limit, translated, lambda record: "said" in record)


def followed(path: Path, limit: int) -> tuple[list[str], int]:
    raws: list[str] = []
    torn = 0
    mark = None
    while (chunk := read(path, mark, limit)).entries or chunk.torn:
        assert not chunk.rewritten
        raws += [one.raw for one in chunk.entries]
        torn += chunk.torn
        mark = Mark(*json.loads(json.dumps(chunk.mark)))
    return raws, torn


@given(st.lists(st.tuples(st.booleans(), whole_lines, broken_lines), max_size=6))
def test_whole_lines_are_never_lost(lines):
    """Among any broken lines, every whole line comes out word for word and in order; steps of any size agree (P32)."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.jsonl")
        path.write_bytes(b"".join((whole if sound else broken) + b"\n" for sound, whole, broken in lines))
        raws, torn = followed(path, 1 << 30)
        wanted = [whole.decode() for sound, whole, _broken in lines if sound]
        kept = iter(raws)
        assert all(any(one == raw for raw in kept) for one in wanted)
        assert followed(path, 1) == (raws, torn)
        assert followed(path, 100) == (raws, torn)


@given(whole_lines, whole_lines, st.data())
def test_a_glued_record_is_found(first, second, data):
    """A record that follows half of another one is read, and the half is counted."""
    at = data.draw(st.integers(1, len(first) - 1))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.jsonl")
        path.write_bytes(first[:at] + second + b"\n")
        chunk = read(path)
        assert second.decode() in [one.raw for one in chunk.entries]
        assert chunk.torn >= 1


@given(st.lists(whole_lines, min_size=1, max_size=4), st.data())
def test_growing_is_the_same_as_being_there(lines, data):
    """Read while it grows, cut at any byte, it gives what is read at once in the end (P32)."""
    body = b"\n".join(lines) + data.draw(st.sampled_from([b"", b"\n"]))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(body)), max_size=4)))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.jsonl")
        grown: list[str] = []
        mark = None
        for cut in [*cuts, len(body)]:
            path.write_bytes(body[:cut])
            chunk = read(path, mark)
            assert not chunk.rewritten
            assert chunk.torn == 0, "an unfinished last line is not torn yet"
            grown += [one.raw for one in chunk.entries]
            mark = chunk.mark
        assert grown == [line.decode() for line in lines]


@pytest.mark.parametrize("name", FILES)
@settings(max_examples=settings().max_examples // 4)  # every one of them reads a whole transcript
@given(data=st.data())
def test_real_transcripts_survive_cuts_and_noise(name, data):
    """A real transcript cut at any byte, with a stretch of it overwritten: nothing raises, untouched records are all there (P32)."""
    of, body = vendor(name), BODIES[name]
    cut = data.draw(st.integers(0, len(body)))
    start = data.draw(st.integers(0, cut))
    noise = data.draw(st.binary(max_size=20))
    spoiled = body[:start] + noise + body[min(cut, start + len(noise)) : cut]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "t.jsonl")
        path.write_bytes(body)
        whole = {one.raw for one in of.read(Location("x", str(path), "")).entries}
        path.write_bytes(spoiled)
        chunk = of.read(Location("x", str(path), ""))
        read_again = {one.raw for one in chunk.entries}
        untouched = {line.decode() for line in body[:start].split(b"\n")[:-1] if line.decode() in whole}
        assert untouched <= read_again
        of.items(chunk.entries)
        reading.read(of, chunk.entries, "", lambda _id: None, set())
        of.hazards(Location("x", str(path), ""), {"HOME": folder})


def test_a_line_without_end_is_bounded(tmp_path, monkeypatch):
    """A line beyond the limit is counted in pieces and never held whole; what follows it is read (P32)."""
    monkeypatch.setattr(jsonl, "LINE_LIMIT", 1000)
    path = tmp_path / "t.jsonl"
    path.write_bytes(b"[" + b"1," * 4000 + b"\n" + b'{"said": "after"}\n')
    raws, torn = followed(path, 500)
    assert raws == ['{"said": "after"}']
    assert torn == 9


def test_memory_does_not_grow_with_the_file(tmp_path):
    """A long transcript is followed in steps that hold about the limit, not the file."""
    path = tmp_path / "t.jsonl"
    line = json.dumps({"said": "x" * 1_000}).encode() + b"\n"
    path.write_bytes(line * 16_000)
    mark, records = None, 0
    tracemalloc.start()
    try:
        while (chunk := read(path, mark, 128 * 1024)).entries:
            mark, records = chunk.mark, records + len(chunk.entries)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert records == 16_000
    assert held < 2 * 1024 * 1024 < path.stat().st_size / 4


def test_a_file_that_shrank_is_read_anew(tmp_path):
    """With a mark beyond the end, or of another beginning or tail, reading starts over and says so."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"said": "one"}\n{"said": "two"}\n')
    mark = read(path).mark
    for other in (
        b'{"said": "one"}\n',
        b'{"said": "ONE"}\n{"said": "two"}\n{"said": "3"}\n',
        b'{"said": "one"}\n{"said": "TWO"}\n',
    ):
        path.write_bytes(other)
        chunk = read(path, mark)
        assert chunk.rewritten
        assert len(chunk.entries) == other.count(b"\n")


def test_half_characters_and_no_numbers(tmp_path):
    """Half of an escaped pair becomes a mark in items and stays in the words; NaN and bytes that are no text are torn."""
    path = tmp_path / "t.jsonl"
    path.write_bytes(b'{"said": "\\ud83d"}\n{"said": NaN}\n{"said": "\xff"}\n\n{"said": "fine"}\n')
    seen = []

    def noted(found: jsonl.Found) -> Entry:
        seen.append(found)
        return translated(found)

    chunk = jsonl.read(str(path), None, 1 << 20, noted, bool)
    assert chunk.torn == 2
    assert [one.raw for one in chunk.entries] == ['{"said": "\\ud83d"}', '{"said": "fine"}']
    assert seen[0].record == {"said": "\ufffd"}


def test_deep_nesting_is_kept(tmp_path):
    """A record that is nested too deeply is kept word for word."""
    path = tmp_path / "t.jsonl"
    deep = '{"a":' * 100_000 + "1" + "}" * 100_000
    path.write_text(deep + "\n")
    chunk = vendor("claude").read(Location("x", str(path), ""))
    assert [(one.raw, one.known) for one in chunk.entries] == [(deep, False)]


UUID = r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
FORMS = {
    "claude": UUID, "codex": UUID, "qwen": UUID, "gemini": r"[A-Za-z0-9][A-Za-z0-9_-]{7,127}",
    "opencode": r"ses_[A-Za-z0-9]{1,64}",
}  # fmt: skip
"""The forms of ids, as patterns. Hooks compare without them: they do not load `re`."""


@pytest.mark.parametrize("name", FORMS)
@given(st.data())
def test_an_id_is_what_the_pattern_of_its_vendor_matches(name, data):
    """Whatever the text, it is an id of the vendor exactly if the vendor's pattern matches all of it."""
    form = FORMS[name]
    texts = st.from_regex(form) | st.from_regex(form, fullmatch=True) | st.text("0aF-_\n\u0660gs", max_size=140)
    text = data.draw(texts)
    assert vendor(name).is_id(text) == (re.fullmatch(form, text) is not None)
