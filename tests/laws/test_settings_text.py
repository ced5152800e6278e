"""Settings are read without the parser where their lines are plain; the parser would have read the same."""

import tomllib

from hypothesis import example, given
from hypothesis import strategies as st

from onrecord.machine.toml import loads, plain, with_setting

PIECES = st.sampled_from([
    "a", "b", "name", "= ", "=", '"x"', '"a b"', "true", "false", "12", "-3", "1.5", "[1, 2]", '["a", "b"]', "[table]", "[a.b]", "\n",
    "\n", "# note", " ", "\t", "{", "'x'", "null", "NaN", "-Infinity", '"\\u0041"', '"é"', "[null]", "[[1]]", "0x1", "1_0", ",", "1979-05-27",
    "\x7f", "\r\n", "01", "1e5", '"\t"', "\u2028",
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=14).map("".join)
LINES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "c-d", "e_1"]), st.sampled_from(['"x"', "true", "7", '["p", "q"]', "[]"])).map(" = ".join)
    | st.sampled_from(["", "# note", "[t]", "  [u]  "]),
    max_size=8,
).map("\n".join)  # fmt: skip


@given(TEXTS | LINES)
@example('a = "x"\n[t]\nb = ["p", 1]\n')
@example("a = 1\na = 2")
@example("[t]\n[t]")
@example("t = 1\n[t]")
def test_plain_lines_mean_what_the_parser_says(text: str):
    """Whatever is read without the parser is what the parser reads; it never accepts what the parser refuses."""
    found = plain(text)
    if found is not None:
        assert found == tomllib.loads(text)
        assert repr(found) == repr(tomllib.loads(text)), "also the types"


@given(LINES, st.sampled_from([True, False, None, ["/a b", '/c"d', "/é"], []]))
def test_one_setting_changes_and_the_rest_stays(text: str, value: object):
    """A setting that is added, changed and removed again leaves the text as it was; every other line stays."""
    try:
        before = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    changed = with_setting(text, "ours", value)
    assert loads(changed) == before | ({} if value is None else {"ours": value})
    back = with_setting(changed, "ours", None)
    assert back.rstrip("\n") == text.rstrip("\n")
