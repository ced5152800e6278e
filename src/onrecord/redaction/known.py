"""Values that the host knows to be secret: of variables whose name says so, in the environment or in `.env` files.

Such a value is found wherever it turns up, whatever it looks like; so weak passwords are found too, unless they are so
short or so common that marking them would mark ordinary words.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

KNOWN_LEAST = 8
"""The shortest known value that is marked, in characters."""
WORD_LEAST = 12
"""The same for values of letters only."""
KNOWN_LIMIT = 500
"""How many known values are searched for."""
WORDS = frozenset(
    {"pass", "password", "passwd", "passphrase", "passcode", "pwd", "pw", "secret", "token", "key", "apikey",
     "accesskey", "auth", "credential", "credentials", "pat", "dsn", "cookie"}
)  # fmt: skip
"""Words of names whose values are secret."""
NO_WORDS = frozenset(
    {"public", "path", "file", "dir", "sock", "url", "uri", "name", "type", "method", "id", "host", "port"}
)
"""Words of names whose values are not, whatever else the name says."""
_LINE = r"^\s*(?:export\s+)?([A-Za-z_][\w.]*)\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s#]*))"
_COMMON = frozenset(
    {"password", "postgres", "changeme", "username", "localhost", "development", "production", "disabled"}
)


def known_values(variables: Mapping[str, str], origin: str) -> dict[str, str]:
    """The secret values among variables, each with its kind; `origin` is `environment` or `dotenv`."""
    found = {}
    for name, value in variables.items():
        if is_secret_name(name) and is_telling(value):
            found[value] = f"{origin}-value"
            if len(found) >= KNOWN_LIMIT:
                break
    return found


def is_secret_name(name: str) -> bool:
    """Whether the name of a variable says that its value is secret."""
    words = set(name.lower().replace("-", "_").replace(".", "_").split("_"))
    return not words & NO_WORDS and (
        bool(words & WORDS) or name.lower().endswith(("password", "secret", "token", "apikey"))
    )


def is_telling(value: str) -> bool:
    """Whether a value is so particular that it means the secret wherever it is found."""
    if len(value) < KNOWN_LEAST or value.lower() in _COMMON or value.startswith(("/", "~", "$", "http://", "https://")):
        return False
    if value.isalpha() or value.isdigit():
        return len(value) >= WORD_LEAST
    return len(set(value)) > 3 and not value.isspace()  # noqa: PLR2004  # `--------` is no secret


def variables_of(text: str) -> dict[str, str]:
    """The variables of a `.env` file."""
    import re

    found = {}
    for line in text.splitlines():
        if match := re.match(_LINE, line):
            found[match[1]] = next((part for part in match.groups()[1:] if part is not None), "")
    return found
