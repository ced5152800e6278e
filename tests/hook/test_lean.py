"""What hooks load instead of `typing`, `json`, `weakref` and the package around zstd: it behaves as the real thing."""

from __future__ import annotations

import gc
import json
import math
import pickle
import subprocess
import sys
import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord import lean_json, lean_typing
from onrecord.lean_weak import WeakKeys
from onrecord.stores import zstd


class Lean(lean_typing.NamedTuple):
    """Two fields."""

    one: int
    two: str = "b"

    def both(self):
        """The two, joined."""
        return f"{self.one}{self.two}"


class Real(typing.NamedTuple):
    """Two fields."""

    one: int
    two: str = "b"

    def both(self):
        """The two, joined."""
        return f"{self.one}{self.two}"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)
BROKEN = ("", " ", "[1,", "[1,]", '{"a"}', '{"a":1,}', '"abc', '"a\nb"', r'"\x"', "nul", "-", "{}x")


@given(JSON, st.booleans())
def test_json_is_written_and_read_as_json_does_it(value, ascii_only):
    """Texts, values and separators are those of `json`, from text and from bytes."""
    for separators in ((", ", ": "), (",", ":")):
        text = lean_json.dumps(value, ensure_ascii=ascii_only, separators=separators)
        assert text == json.dumps(value, ensure_ascii=ascii_only, separators=separators)
    read = lean_json.loads(f" {text}\n")
    assert (read, lean_json.loads_standard(text)) == (value, value)
    assert json.dumps(read) == json.dumps(json.loads(text))
    assert lean_json.loads(text.encode("utf-8", "surrogatepass")) == value


@pytest.mark.parametrize("text", BROKEN)
def test_what_is_no_json_is_the_error_of_json(text):
    """A text that is no JSON raises what `json` raises, with its words and its place."""
    with pytest.raises(json.JSONDecodeError) as wanted:
        json.loads(text)
    for read in (lean_json.loads, lean_json.loads_standard):
        with pytest.raises(json.JSONDecodeError) as found:
            read(text)
        assert str(found.value) == str(wanted.value)


def test_a_byte_order_mark_is_the_error_of_json():
    """A text or bytes that begin with a byte order mark are refused or read as `json` does it."""
    with pytest.raises(json.JSONDecodeError, match="BOM"):
        lean_json.loads("\ufeff1")
    assert lean_json.loads(b"\xef\xbb\xbf1") == 1
    assert lean_json.loads("[1]".encode("utf-16")) == [1]


def test_the_error_is_the_same_where_json_is_not_imported():
    """In a process that never imported `json`, broken JSON is a ValueError all the same, and whole JSON imports none."""
    code = """
import sys
from onrecord import lean_json
assert lean_json.loads(lean_json.dumps({"a": [1.5, None, "é"]})) == {"a": [1.5, None, "é"]}
assert not {"json", "re"} & sys.modules.keys()
for text in %r:
    for read in (lean_json.loads, lean_json.loads_standard):
        try:
            read(text)
        except ValueError as problem:
            assert type(problem).__name__ == "JSONDecodeError", problem
        else:
            raise AssertionError(text)
    for name in [name for name in sys.modules if name.partition(".")[0] == "json"]:
        del sys.modules[name]
"""
    subprocess.run([sys.executable, "-c", code % (BROKEN,)], check=True, timeout=60)


def test_numbers_that_only_python_writes():
    """`loads` reads NaN and infinities as `json` does; `loads_standard` refuses them."""
    assert math.isnan(lean_json.loads("NaN"))
    assert lean_json.loads('[Infinity, {"a": -Infinity}]') == [math.inf, {"a": -math.inf}]
    for text in ("NaN", "[Infinity]", '{"a": -Infinity}'):
        with pytest.raises(ValueError, match="is no JSON"):
            lean_json.loads_standard(text)


def test_what_json_cannot_write_is_refused():
    """An object that is no JSON value is a TypeError; one inside itself is a ValueError."""
    with pytest.raises(TypeError, match="Object of type set is not JSON serializable"):
        lean_json.dumps([set()])
    around: list[object] = []
    around.append(around)
    with pytest.raises(ValueError, match="Circular"):
        lean_json.dumps(around)


def test_a_weak_table_keeps_nothing_alive():
    """A value is there as long as its object is; the objects that are alive can be listed, and forgotten."""

    class Thing:
        """Something that can end."""

    first, second = Thing(), Thing()
    table: WeakKeys[Thing, int] = WeakKeys()
    table[first], table[second] = 1, 2
    table[first] = 3
    assert (table.get(first), table.get(second), table.get(Thing()), len(list(table))) == (3, 2, None, 2)
    del first
    gc.collect()
    assert list(table) == [second]
    table.discard(second)
    table.discard(second)
    assert (table.get(second), list(table)) == (None, [])


@pytest.mark.parametrize("kind", [Lean, Real], ids=["lean", "real"])
def test_a_named_tuple_is_as_typing_makes_it(kind):
    """Fields, defaults, methods, module, comparison and copies are those of `typing.NamedTuple`."""
    made = kind(1)
    assert (made, made.two, made.both(), made._asdict()) == ((1, "b"), "b", "1b", {"one": 1, "two": "b"})
    assert (kind._fields, kind._field_defaults, kind.__bases__) == (("one", "two"), {"two": "b"}, (tuple,))
    assert (kind.__module__, kind.__doc__, repr(made)) == (__name__, "Two fields.", f"{kind.__name__}(one=1, two='b')")
    assert pickle.loads(pickle.dumps(made)) == made._replace(one=1)
    assert type(pickle.loads(pickle.dumps(made))) is kind
    assert (kind._make([2, "c"]), kind(two="c", one=2)) == ((2, "c"), (2, "c"))
    match made:
        case kind(one, two):
            assert (one, two) == (1, "b")
    for wrong in (kind, lambda: kind(1, "b", 3), lambda: kind(1, three=3), lambda: kind._make([1])):
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError, match="three"):
        made._replace(three=3)


def test_a_class_below_a_named_tuple_is_made_first():
    """The constructor is compiled for the class that has the fields, also if the first one made is of a class below it."""

    class Upper(lean_typing.NamedTuple):
        one: int
        two: str = "b"

    class Below(Upper):
        """A class of its own."""

    assert type(Below(1)) is Below
    assert (Below(1), Upper(3), Upper(two="c", one=3)) == ((1, "b"), (3, "b"), (3, "c"))
    assert Upper.__new__.__defaults__ == ("b",)


def test_zstd_is_the_extension_of_the_package():
    """Without the package, the extension is loaded by itself, and its frames are the package's."""
    import zstandard

    extension = zstd._extension()
    assert extension is not None
    frame = extension.ZstdCompressor(level=3).compress(b"a word " * 100)
    assert zstandard.ZstdDecompressor().decompress(frame) == b"a word " * 100


def test_without_an_extension_the_package_decides(monkeypatch):
    """Where an installation has no C extension, the package is imported, with whatever it has."""
    import zstandard

    monkeypatch.setattr(zstd, "_loaded", None)
    monkeypatch.setattr(zstd, "_EXTENSION", "zstandard.no_such_extension")
    monkeypatch.delitem(sys.modules, "zstandard")
    try:
        assert zstd.zstd().ZstdCompressor is zstandard.ZstdCompressor
    finally:
        sys.modules["zstandard"] = zstandard
