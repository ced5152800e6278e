"""JSON to and from engines: thousands of token ids in each turn, which orjson reads and writes many times faster.

Only for engines. orjson rounds integers of more than 64 bits, and a client's request may have one that counts; in an
engine's reply the numbers that count are ids of 31 bits and logprobs.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from onrecord.rollout.engines import load_json


def dump(body: dict[str, Any]) -> bytes:
    """A request as bytes; what orjson does not write (an integer of more than 64 bits), the standard library does."""
    try:
        return orjson.dumps(body)
    except TypeError:
        return json.dumps(body, separators=(",", ":")).encode()


def load(received: bytes) -> Any:
    """A reply, or `ValueError`; what orjson refuses (half a character, for instance), the standard library judges."""
    try:
        return orjson.loads(received)
    except ValueError:
        return load_json(received)
