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
_VARIABLE = (
    r"^[ \t]*(?:export[ \t]+)?([A-Za-z_][\w.]*)[ \t]*=[ \t]*"
    r"(?:\"((?:[^\"\\]|\\.)*)\"|'([^']*)'|((?:[^\s#]|(?<!\s)#|[ \t]+(?=[^\s#]))*))"
)
"""As dotenv libraries read it: quoted values may have several lines, and a hash begins a comment only after a blank."""
_COMMON = frozenset(
    {"password", "postgres", "changeme", "username", "localhost", "development", "production", "disabled"}
)


def known_values(variables: Mapping[str, str], origin: str) -> dict[str, str]:
    """The secret values among variables, each with its kind; `origin` is `environment` or `dotenv`."""
    found: dict[str, str] = {}
    for name, value in variables.items():
        secret = value if is_secret_name(name) else password_in(value)
        if secret and is_telling(secret):
            found[secret] = f"{origin}-value"
            if len(found) >= KNOWN_LIMIT:
                break
    return found


def password_in(value: str) -> str:
    """The password in a URL, such as that of a database; "" if there is none."""
    _scheme, _mark, rest = value.partition("://")
    password = rest.partition("/")[0].rpartition("@")[0].partition(":")[2]
    if "%" in password:
        import re

        made = re.sub(
            rb"%([0-9A-Fa-f]{2})", lambda found: bytes.fromhex(found[1].decode()), password.encode(errors="replace")
        )
        return made.decode(errors="replace")
    return password


def is_secret_name(name: str) -> bool:
    """Whether the name of a variable says that its value is secret."""
    words = set(name.lower().replace("-", "_").replace(".", "_").split("_"))
    return not words & NO_WORDS and (
        bool(words & WORDS) or name.lower().endswith(("password", "secret", "token", "apikey"))
    )


def is_telling(value: str) -> bool:
    """Whether a value is so particular that it means the secret wherever it is found."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False  # it has bytes that are no text, so no text has it
    if len(value) < KNOWN_LEAST or value.lower() in _COMMON or value.startswith(("/", "~", "$", "http://", "https://")):
        return False
    if value.isalpha() or value.isdigit():
        return len(value) >= WORD_LEAST
    return len(set(value)) > 3 and not value.isspace()  # noqa: PLR2004  # `--------` is no secret


def variables_of(text: str) -> dict[str, str]:
    """The variables of a `.env` file."""
    import re

    found = {}
    # Each line by itself comes first: a quote that is never closed must not hide the variables after it.
    for part in (*text.splitlines(), text):
        for match in re.finditer(_VARIABLE, part, re.MULTILINE | re.DOTALL):
            name, double, single, bare = match.groups()
            if double is not None:
                found[name] = re.sub(r"\\([\"\\$])", r"\1", double)
            else:
                found[name] = bare if single is None else single
    return found
