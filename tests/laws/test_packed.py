"""Packed numbers: every bit comes back, and the text follows the format on every machine."""

from array import array
from base64 import b64encode
from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onrecord.errors import DamagedLog
from onrecord.log.packed import count_packed, pack_floats, pack_integers, unpack_floats, unpack_integers
from onrecord.log.text import text_of

integers = st.lists(st.integers(-(2**31), 2**31 - 1))
floats = st.lists(st.floats(width=32))


@given(integers)
def test_integers_come_back(values):
    """Any 32-bit integers come back, and the text is little-endian base64 after its mark."""
    text = pack_integers(values)
    assert unpack_integers(text).tolist() == values
    assert text == "i32le:" + b64encode(pack(f"<{len(values)}i", *values)).decode()
    assert count_packed(text) == len(values)


@given(floats)
def test_floats_come_back_bit_for_bit(values):
    """Any single-precision numbers come back with their bits, infinities, negative zero and NaN included."""
    text = pack_floats(values)
    assert unpack_floats(text).tobytes() == array("f", values).tobytes()
    assert text == "f32le:" + b64encode(pack(f"<{len(values)}f", *values)).decode()
    assert count_packed(text) == len(values)


@given(st.one_of(st.text(), st.integers(), st.none(), st.builds("i32le:{}".format, st.text(min_size=1, max_size=3))))
def test_anything_else_is_told_as_damage(text):
    """A text that is not packed, or was cut, is an error and never other numbers."""
    with pytest.raises(DamagedLog):
        unpack_integers(text)


@given(integers)
def test_search_does_not_look_into_numbers(values):
    """The searchable words of an event have no packed numbers among them."""
    assert text_of({"ids": pack_integers(values), "finish": "stop"}) == "stop"
