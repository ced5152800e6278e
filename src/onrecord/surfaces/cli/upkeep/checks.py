"""One finding of `onrecord doctor`."""

from __future__ import annotations

from typing import NamedTuple


class Check(NamedTuple):
    """One check. `state` is ok, info, fixed or wrong."""

    name: str
    state: str
    value: str
    advice: str = ""
