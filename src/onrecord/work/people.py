"""Who a person is: the name that every event gets which a person causes. Reads git's files and starts no process.

It is the git identity, as commits have it; else the user of the operating system; else the login of the store's server.
It is written as a name of the log, `Ada-Lovelace`, and never the name of a coding agent.
"""

from __future__ import annotations

import os

from onrecord.log.names import NAME_LIMIT
from onrecord.work.git_files import read_text, settings_in

UNKNOWN = "human"
"""A person about whom nothing is known."""
_TAKEN = frozenset(
    {"claude", "codex", "gemini", "copilot", "cursor", "opencode", "qwen", "main", "crew", "onrecord", "retention"}
)
"""Names of agents and of onrecord's own actors."""
_MACHINES = frozenset({"root", "admin", "administrator", "user", "ubuntu", "docker", "runner", "vscode", "node"})
"""Users of machines and containers: these say nothing about the person."""


def person(start: str, store: str = "") -> str:
    """The name of the person at work in a directory; `store` is the URL of the store."""
    user = written(_user())
    named = written(_git_name(start)) or (user if user.lower() not in _MACHINES else "")
    named = named or written(_login(store)) or user or UNKNOWN
    return f"{named[: NAME_LIMIT - 7]}-person" if named.lower() in _TAKEN else named


def written(name: str) -> str:
    """A person's name as a name of the log: letters, digits, dots and dashes; "" if nothing is left of it."""
    if not name.isascii():
        from unicodedata import normalize

        # What has no Latin letter becomes a gap; if all of it does, the name is known by something else.
        name = normalize("NFKD", name).encode("ascii", "ignore").decode()
    kept = "".join(one if one.isalnum() or one in "._-" else " " for one in name)
    whole = "-".join(kept.split())
    while ".." in whole:
        whole = whole.replace("..", ".")
    return whole.strip("._-")[:NAME_LIMIT].rstrip("._-")


def _git_name(start: str) -> str:
    """The author's name of commits here; the first part of the address if the name has no Latin letter."""
    environ = os.environ
    name, address = environ.get("GIT_AUTHOR_NAME", ""), environ.get("GIT_AUTHOR_EMAIL", "")
    for path in _configurations(start):
        if written(name):
            break
        found = settings_in(read_text(path))
        name = name or found.get(("user", "", "name"), "")
        address = address or found.get(("user", "", "email"), "")
    return name if written(name) else address.partition("@")[0]


def _configurations(start: str) -> list[str]:
    """Git's configurations that may have the author: of the repository, of the user, of the machine."""
    from onrecord.work.project import git_directory

    own = git_directory(start)
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    users = [os.environ.get("GIT_CONFIG_GLOBAL", "") or "~/.gitconfig", os.path.join(base, "git", "config")]
    return [
        *([os.path.join(own, "config")] if own else []), *map(os.path.expanduser, users), "/etc/gitconfig",
    ]  # fmt: skip


def _user() -> str:
    try:
        import pwd

        return pwd.getpwuid(os.getuid()).pw_name
    except (ImportError, KeyError):
        return os.environ.get("LOGNAME") or os.environ.get("USER") or ""


def _login(store: str) -> str:
    """The user in the URL of a server."""
    scheme, found, rest = store.partition("://")
    if not found or not scheme.startswith("postgres"):
        return ""
    login = rest.partition("/")[0].partition("?")[0].rpartition("@")[0].partition(":")[0]
    return login or os.environ.get("PGUSER", "")
