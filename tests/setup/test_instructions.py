"""The block of instructions in a user's file: added, compared, and removed byte for byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.views.instructions import block, has_block, installed, is_changed, removed

BLOCK = block()
_lines = st.lists(st.text("ab #<!-é\t", max_size=6), max_size=5)


@given(lines=_lines, line_end=st.sampled_from(["\n", "\r\n"]), ending=st.integers(0, 3))
def test_what_is_put_in_comes_out_byte_for_byte(lines, line_end, ending):
    """Whatever the text, its line ends and its last line: adding and removing restores it; adding twice is adding once."""
    text = line_end.join(lines) + line_end * ending
    put = installed(text, BLOCK)
    assert put.startswith(text)
    assert has_block(put)
    assert not is_changed(put)
    assert installed(put, BLOCK) == put
    assert removed(put) == text


def test_a_file_of_our_own_goes_whole():
    """Where there was no file, none remains; an empty file stays an empty file."""
    assert installed(None, BLOCK) == BLOCK
    assert removed(BLOCK) is None
    assert removed(installed("", BLOCK)) == ""


@given(above=_lines, below=_lines)
def test_text_that_was_written_around_it_stays(above, below):
    """Lines that were added above and below our block remain when it is removed."""
    text = "\n".join(above) + "\n" + installed("mine\n", BLOCK) + "\n".join(below)
    left = removed(text)
    assert left is not None
    assert left == "\n".join(above) + "\nmine\n" + "\n".join(below)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_a_changed_block_is_noticed(line_end):
    """One changed letter inside the block is detected; the user's own lines are ignored."""
    text = installed(f"mine{line_end}", BLOCK)
    assert not is_changed(text)
    assert is_changed(text.replace("Run things", "Run all things"))
    assert not is_changed(text.replace("mine", "yours"))


def test_a_block_of_an_older_version_is_renewed():
    """A block without a version, as the first ones were written, is found and replaced in place."""
    old = "top\n<!-- onrecord:instructions 0a1b2c3d -->\nold words\n<!-- onrecord:instructions end -->\nbelow\n"
    assert installed(old, BLOCK) == f"top\n{BLOCK}below\n"
