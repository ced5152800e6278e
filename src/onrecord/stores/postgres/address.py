"""The address of a store in PostgreSQL: which parts of a URL are ours, and which are libpq's.

`tenant` and `notify` are ours and are removed before libpq sees the URL; everything else is libpq's, several hosts
included. The defaults detect a lost server within seconds and, of several hosts, select the one that accepts writes.
"""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

from onrecord.errors import InvalidInput
from onrecord.log.names import check_name

SCHEMES = ("postgresql", "postgres")
DEFAULT_TENANT = "default"
CONNECT_SECONDS = 10
"""How long one host may take to accept a connection."""
SILENT_MILLISECONDS = 10_000
"""How long sent bytes may stay unacknowledged before the connection counts as lost."""

_WRITERS = ("read-write", "primary")
_DEFAULTS = {
    "application_name": "onrecord",
    "connect_timeout": str(CONNECT_SECONDS),
    "target_session_attrs": "read-write",
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": str(SILENT_MILLISECONDS),
}

_SWITCH = {"off": False, "on": True}


class Address(NamedTuple):
    """A database and a tenant in it."""

    conninfo: str
    """For libpq."""
    tenant: str
    shown: str
    """For people: without a password."""
    anywhere: bool
    """Whether a read-only server will do."""
    notify: bool
    """Whether appends wake followers with NOTIFY."""


def address_of(url: str, tenant: str | None = None) -> Address:
    """Parse a URL; `tenant` applies where the URL names none."""
    parts = urlsplit(url)
    if parts.scheme not in SCHEMES:
        raise InvalidInput(f"{parts.scheme}:// is not a PostgreSQL URL", hint="use postgresql://user@host/database")
    if "@" in parts.path + parts.fragment + parts.query.partition("=")[0]:
        # The rest of a password with a bare / or ? would be read as a port and a database, and shown.
        raise InvalidInput(
            "the password in this URL is not encoded", hint="write / as %2F, ? as %3F, # as %23, @ as %40"
        )
    given = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(given)
    if len(options) != len(given):
        twice = next(name for name, _value in given if [one for one, _value in given].count(name) > 1)
        raise InvalidInput(f"the URL names {twice!r:.40} twice", hint="name each option once")
    chosen = check_name(options.pop("tenant", "") or tenant or DEFAULT_TENANT, "tenant")
    notify = options.pop("notify", "off")
    if notify not in _SWITCH:
        raise InvalidInput(f"notify must be on or off, not {notify!r:.20}")
    words = {name: value for name, value in _DEFAULTS.items() if name not in options} | options
    conninfo = _url(parts.netloc, parts.path, urlencode(words, quote_via=quote))
    shown = _without_password(parts.netloc, parts.path, options, chosen)
    return Address(conninfo, chosen, shown, words["target_session_attrs"] not in _WRITERS, _SWITCH[notify])


def with_tenant(url: str, tenant: str) -> str:
    """The same URL for another tenant."""
    parts = urlsplit(url)
    options = [(name, value) for name, value in parse_qsl(parts.query, keep_blank_values=True) if name != "tenant"]
    query = urlencode([*options, ("tenant", check_name(tenant, "tenant"))], quote_via=quote)
    return f"{parts.scheme}://{parts.netloc}{parts.path}?{query}"


def _without_password(netloc: str, path: str, options: dict[str, str], tenant: str) -> str:
    login, at, hosts = netloc.rpartition("@")
    kept = {name: value for name, value in options.items() if name in ("host", "port", "user")} | {"tenant": tenant}
    return _url(login.partition(":")[0] + at + hosts, path, urlencode(kept, safe="/,"))


def _url(netloc: str, path: str, query: str) -> str:
    """The URL put together again, with its slashes even where it names no host (the server of this machine)."""
    return f"{SCHEMES[0]}://{netloc}{path}?{query}"
