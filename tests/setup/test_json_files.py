"""Our part in a user's JSON file: everything of the user's stays byte for byte, whatever the layout of the file."""

import json
import string
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from onrecord.errors import Conflict, InvalidInput
from onrecord.setup import jsontext
from onrecord.setup.installing import is_ours
from onrecord.vendors.port import VENDORS, vendor

COMMAND = ["/opt/my tools/bin/python", "-I", "-m", "onrecord"]
JSON_VENDORS = [name for name in VENDORS if isinstance(vendor(name).hook_settings(COMMAND), dict)]
SHAPES = ("claude", "cursor")
"""Groups with a list of hooks each, and plain lists of hooks in a file with a version: there are no other forms."""
_words = st.text(string.ascii_letters + ' "\\/é\n😀{}[],:', max_size=8)
_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | _words
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_words, inner, max_size=3), max_leaves=8
)
_hook = st.fixed_dictionaries({"type": st.just("command"), "command": _words}, optional={"timeout": st.integers()})
_group = st.fixed_dictionaries({"hooks": st.lists(_hook, max_size=2)}, optional={"matcher": _words}) | _hook


def settings(name: str, command: list[str]) -> dict[str, Any]:
    """What is merged into a vendor's file."""
    found = vendor(name).hook_settings(command)
    assert isinstance(found, dict)
    return found


def is_same(text: str, content: dict[str, Any]) -> bool:
    """Whether the text is JSON with this content."""
    try:
        return bool(json.loads(text) == content)
    except ValueError:
        return False


@st.composite
def files(draw, name):
    """A settings file as people have them: any content, some of it hooks, any layout."""
    events = sorted(settings(name, COMMAND)["hooks"])
    content = draw(st.dictionaries(_words, _values, max_size=3))
    if draw(st.booleans()):
        some = st.sampled_from([*events, "SomeOtherEvent"])
        content["hooks"] = draw(st.dictionaries(some, st.lists(_group, max_size=2), max_size=4))
        if draw(st.booleans()):
            content = dict(reversed(content.items()))
    indent = draw(st.sampled_from([None, 0, 1, 2, 4, "\t"]))
    tight = draw(st.booleans())
    text = json.dumps(
        content, indent=indent, separators=(",", ":") if tight else None, ensure_ascii=draw(st.booleans())
    )
    if draw(st.booleans()):
        spread = text.replace("{}", "{ }").replace("[]", "[\n]")
        # If it changed a string, it is another file, or not JSON at all.
        text = spread if is_same(spread, content) else text
    if draw(st.booleans()):
        text = text.replace("\n", "\r\n")
    return draw(st.sampled_from(["", "\ufeff", "\n \t"])) + text + draw(st.sampled_from(["", "\n", "\r\n\r\n", "  "]))


@pytest.mark.parametrize("name", SHAPES)
@given(data=st.data())
def test_what_is_put_in_comes_out_byte_for_byte(name, data):
    """Adding and removing restores the file; adding twice is adding once; no setting of the user's changes its meaning."""
    text = data.draw(files(name))
    assume(not text.startswith("\n") or not text.strip().startswith("\ufeff"))
    wanted, ours = settings(name, COMMAND), is_ours(name)
    user = json.loads(text.removeprefix("\ufeff"))
    assume(not jsontext.has_any(text, ours))
    put = jsontext.merged(text, wanted, ours)
    found = json.loads(put.removeprefix("\ufeff"))
    for event, entries in wanted["hooks"].items():
        assert found["hooks"][event][-len(entries) :] == entries
        assert found["hooks"][event][: -len(entries)] == user.get("hooks", {}).get(event, [])
    assert {key: value for key, value in found.items() if key != "hooks"} == {
        key: value for key, value in user.items() if key != "hooks"
    }
    assert jsontext.merged(put, wanted, ours) == put
    assert not jsontext.is_created(put, wanted, ours)
    assert jsontext.without(put, ours) == text


@pytest.mark.parametrize("name", SHAPES)
@given(data=st.data())
def test_another_command_replaces_ours_and_still_comes_out(name, data):
    """A moved interpreter renews our entries in place of the old ones; taking them out leaves the file as it was."""
    text = data.draw(files(name))
    ours = is_ours(name)
    first = jsontext.merged(text, settings(name, COMMAND), ours)
    moved = settings(name, ["/elsewhere/onrecord"])
    second = jsontext.merged(first, moved, ours)
    assert len(jsontext.commands(second, ours)) == len(jsontext.commands(first, ours))
    assert all(one.startswith("/elsewhere/onrecord hook ") for one in jsontext.commands(second, ours))
    assert jsontext.without(second, ours) == text


@pytest.mark.parametrize("name", SHAPES)
@given(data=st.data())
def test_a_user_who_edits_around_our_part_keeps_every_edit(name, data):
    """Hooks that the user added next to ours, even inside our entry, and other settings, stay; only ours are removed."""
    ours, wanted = is_ours(name), settings(name, COMMAND)
    value = json.loads(jsontext.merged(data.draw(files(name)), wanted, ours).removeprefix("\ufeff"))
    event = data.draw(st.sampled_from(sorted(wanted["hooks"])))
    theirs = {"type": "command", "command": "their own"}
    where = data.draw(st.sampled_from(["first", "last", "inside"]))
    entry = next(one for one in value["hooks"][event] if jsontext.is_mine(one, ours))
    if where == "inside" and "hooks" in entry:
        entry["hooks"].append(theirs)
    else:
        value["hooks"][event].insert(0 if where == "first" else len(value["hooks"][event]), theirs)
    value["added"] = True
    text = json.dumps(value, indent=data.draw(st.sampled_from([None, 2])))
    left = json.loads(jsontext.without(text, ours))
    assert "their own" in json.dumps(left["hooks"][event])
    assert left["added"] is True
    assert not jsontext.has_any(json.dumps(left), ours)


@pytest.mark.parametrize("name", JSON_VENDORS)
def test_a_file_of_our_own_is_known_as_ours(name):
    """A file we created is recognised, also after the command moved; one line of the user's makes it the user's."""
    wanted, ours = settings(name, COMMAND), is_ours(name)
    text = jsontext.created(wanted)
    assert json.loads(text) == wanted
    assert jsontext.is_created(text, wanted, ours)
    moved = settings(name, ["/elsewhere/onrecord"])
    assert jsontext.merged(text, moved, ours) == jsontext.created(moved)
    theirs = json.dumps(json.loads(text) | {"model": "x"}, indent=2)
    assert not jsontext.is_created(theirs, wanted, ours)


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "7", '{"a": 1,}', '{\n  // mine\n  "a": 1\n}', '{"a": 1 /* x */}', '{"a": 1', '{"hooks": []}',
        '{"hooks": {"PreToolUse": {}}}', '{"hooks": null}', "[" * 50_000,
    ],
)  # fmt: skip
def test_what_is_not_plain_json_is_refused(text):
    """Comments, other forms and other types where hooks belong are an error with a hint, never a rewritten file."""
    with pytest.raises((InvalidInput, Conflict)) as problem:
        jsontext.merged(text, settings("claude", COMMAND), is_ours("claude"))
    assert problem.value.hint
    if "//" in text or "/*" in text:
        assert "comments" in problem.value.message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/opt/onrecord hook claude Stop", True),
        ("'/opt/my tools/python' -I -m onrecord hook claude Stop", True),
        ("onrecord hook claude", True),
        ("'/a b/onrecord' hook claude X", True),
        ("onrecord hook claudette X", False),
        ("my-onrecord hook claude", False),
        ("onrecord note", False),
        ("echo 'onrecord' && hook claude", False),
        (7, False),
    ],
)
def test_only_our_own_command_is_ours(text, expected):
    """The command of a hook is recognised by program and words; look-alikes are the user's."""
    assert is_ours("claude")(text) is expected
