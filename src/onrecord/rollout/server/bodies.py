"""The body of a client's request, checked as a whole: what follows can record and answer all of its text."""

from __future__ import annotations

import json
import re
from typing import Any

from onrecord.errors import InvalidInput
from onrecord.rollout.engines import load_json

_HALVES = re.compile(rb"\\u[dD][89a-fA-F]|\xed[\xa0-\xbf]|\0")
"""What a body with half a character has, in any encoding of JSON. Others may have it too, but few do."""


def load_request(body: bytes) -> dict[str, Any]:
    """The body of a request: a JSON object, in which all text is valid Unicode."""
    try:
        asked = load_json(body)
        if _HALVES.search(body):
            json.dumps(asked, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise InvalidInput(
            "the body contains a lone surrogate, which is not valid Unicode",
            hint="send whole characters; some text was cut in the middle of one",
        ) from None
    except ValueError as error:
        raise InvalidInput(f"the body is not JSON: {error}") from None
    if not isinstance(asked, dict):
        raise InvalidInput("the body must be a JSON object")
    return asked
