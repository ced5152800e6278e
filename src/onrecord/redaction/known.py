"""Values that the host knows to be secret: of variables whose name says so, in the environment or in `.env` files.

Such a value is found wherever it turns up, whatever it looks like; so weak passwords are found too, unless they are so
short or so common that marking them would mark ordinary words.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN_LEAST = 8
"""The shortest known value that is marked, in characters."""
WORD_LEAST = 12
"""The same for values of letters only."""
KNOWN_LIMIT = 500
"""How many known values are searched for."""
_NAME = re.compile(
    r"(?i)(?:pass(?:word|wd|phrase|code)?|pwd|secret|token|api_?key|access_?key|private_?key|auth|credential|_key|_pat|"
    r"_pw|_dsn|cookie)(?:_|\b|$|\d)|^(?:key|pgpassword)$"
)
_NO_NAME = re.compile(r"(?i)public|_path$|_file$|_dir$|_sock$|_url$|_uri$|_name$|_type$|_method$|_id$|_host$|_port$")
_LINE = re.compile(r"^\s*(?:export\s+)?([A-Za-z_][\w.]*)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s#]*))")
_COMMON = frozenset(
    {"password", "postgres", "changeme", "username", "localhost", "development", "production", "disabled"}
)


def known_values(variables: Mapping[str, str], origin: str) -> dict[str, str]:
    """The secret values among variables, each with its kind; `origin` is `environment` or `dotenv`."""
    found = {}
    for name, value in variables.items():
        if _NAME.search(name) and not _NO_NAME.search(name) and is_telling(value):
            found[value] = f"{origin}-value"
            if len(found) >= KNOWN_LIMIT:
                break
    return found


def is_telling(value: str) -> bool:
    """Whether a value is so particular that it means the secret wherever it is found."""
    if len(value) < KNOWN_LEAST or value.lower() in _COMMON or value.startswith(("/", "~", "$", "http://", "https://")):
        return False
    if value.isalpha() or value.isdigit():
        return len(value) >= WORD_LEAST
    return len(set(value)) > 3 and not value.isspace()  # noqa: PLR2004  # `--------` is no secret


def variables_of(text: str) -> dict[str, str]:
    """The variables of a `.env` file."""
    found = {}
    for line in text.splitlines():
        if match := _LINE.match(line):
            found[match[1]] = next((part for part in match.groups()[1:] if part is not None), "")
    return found
