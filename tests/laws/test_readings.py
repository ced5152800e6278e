"""Laws of readings: what is condensed against a record is resolved without a change, whatever the record is."""

import json

from hypothesis import given
from hypothesis import strategies as st

from onrecord.log.readings import condense, resolve, rows_of
from onrecord.log.text import text_of

texts = st.text(max_size=60) | st.sampled_from(
    ["$", "$+", "$=", "/", "~j", "a/b~c" * 5, '{"inner": "' + "x" * 30 + '"}']
)
values = st.recursive(
    texts | st.integers() | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=12,
)


def parts(value: object) -> list[object]:
    """The value, everything inside it, and what texts inside it are as JSON."""
    found = [value]
    if isinstance(value, dict | list):
        for one in value.values() if isinstance(value, dict) else value:
            found += parts(one)
    elif isinstance(value, str) and value.startswith('{"inner"'):
        found += parts(json.loads(value))
    return found


@given(st.data(), values, values)
def test_condensing_loses_nothing(data, record, other):
    """A value made of the record's own parts, of other values and of joined texts comes back as it was."""
    pool = st.sampled_from(parts(record)) | st.just(other)
    spoken = pool.filter(lambda one: isinstance(one, str)) | texts
    joined = st.lists(spoken, max_size=3).map(lambda many: "\n".join(map(str, many)))
    value = data.draw(st.lists(pool | joined | st.dictionaries(st.sampled_from("abc"), pool, max_size=2), max_size=4))
    whole = {"items": [{"role": "user", "content": value}]}
    assert json.dumps(resolve(record, condense(record, whole))) == json.dumps(whole)


@given(st.lists(st.text(min_size=1, max_size=80), min_size=1, max_size=4))
def test_search_compares_what_was_said_and_nothing_else(said):
    """The words of a kept part are those of its items: neither its JSON nor its ids."""
    lines = [json.dumps({"uuid": f"id-{number}", "text": text}) for number, text in enumerate(said)]
    rows = [
        {"line": number, "id": {"$": "/uuid"}}
        | condense(json.loads(line), {"items": [{"role": "user", "content": text}]})
        for number, (line, text) in enumerate(zip(lines, said, strict=True))
    ]
    data = {"vendor_id": "secret", "lines": lines, "reading": rows}
    assert text_of(data) == "\n".join(said)
    assert [row.id for row in rows_of(data)] == [f"id-{number}" for number in range(len(said))]
