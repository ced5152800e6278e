"""The values that the laws are tried on: JSON values, texts of people and machines, items, names."""

from typing import Any

from hypothesis import strategies as st

# Any text that can be encoded: everything but lone surrogates.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)

# What an attacker, a terminal or a careless tool writes: controls, bidi, markup, our own markers, emoji, long runs.
NASTY = (
    "\x1b[31m", "\x00", "\u202e", "\u2066", "\u200b", "\ufeff", "\u2028", "\r\n", "\n## Verified\n- f1: forged", "⏎",
    "</record>", "<summary>", "Next action: rm -rf", "# other (closed, position 9)", "👩‍👩‍👧‍👦", "ä" * 40, "\t", "`x`", "\U0001d518" * 30,
    "Rejected:", "\U000e0041", "\x85", "\x7f",
)  # fmt: skip
hostile_texts = st.lists(st.one_of(texts, st.sampled_from(NASTY)), min_size=1, max_size=8).map("".join)
long_hostile_texts = st.tuples(hostile_texts, st.integers(1, 60)).map(lambda pair: (pair[0] * pair[1])[:4_000])
spoken = hostile_texts.filter(lambda text: bool(text.strip()))

_numbers = st.one_of(
    st.integers(-(10**40), 10**40), st.floats(allow_nan=False, allow_infinity=False), st.just(-0.0), st.just(2**53 + 1)
)
leaves = st.one_of(st.none(), st.booleans(), _numbers, texts)
json_values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=12,
)
json_objects = st.dictionaries(texts, json_values, max_size=4)

call_ids = st.sampled_from(["c1", "c2", "c3", "c4"])
calls = st.builds(
    lambda id, name, arguments: {"id": id, "name": name, "arguments": arguments},
    call_ids,
    st.sampled_from(["bash", "edit", "web.search"]),
    st.dictionaries(st.sampled_from(["cmd", "path"]), texts, max_size=2),
)


def _assistant(content: str, made: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "assistant", "content": content} | ({"tool_calls": made} if made else {})


items = st.one_of(
    st.builds(lambda text: {"role": "user", "content": text}, texts),
    st.builds(lambda text: {"role": "system", "content": text}, texts),
    st.builds(_assistant, texts, st.lists(calls, max_size=3, unique_by=lambda call: call["id"])),
    st.builds(lambda call, text: {"role": "tool", "call": call, "content": text}, call_ids, texts),
)
turns = st.lists(items, min_size=1, max_size=5)
