"""Our MCP server in a vendor's file: one member of a JSON object, or one block of a TOML file. The rest stays as it is.

In JSON our entry is known by its name and by the command it runs; in TOML it is between two comments, with a hash
that shows a change by hand.
"""

from __future__ import annotations

import re
import tomllib
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, InvalidInput
from onrecord.setup import jsontext
from onrecord.vendors.mcp_servers import SERVER, entry, keys_of, runs_us, server_words, toml_entry

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_BLOCK = re.compile(
    r"\r?\n?# onrecord:mcp ([0-9a-f]{8})[^\n]*\n(.*?)# onrecord:mcp end(?:\r?\n|\Z)",
    re.DOTALL,
)


def with_server(vendor: str, path: Path, text: str | None, command: Sequence[str], *, force: bool = False) -> str:
    """The file's text with our server in it."""
    if path.suffix == ".toml":
        return _with_block(text, toml_entry(command), force=force)
    wanted = entry(vendor, path.name, command)
    if text is None:
        return jsontext.created(_nested(vendor, wanted))
    present = _present(vendor, text)
    if present == wanted:
        return text
    if present is not None:
        if not force:
            raise _changed() if runs_us(present) else _taken()
        text = jsontext.without_member(text, keys_of(vendor))
        if text is None:
            return jsontext.created(_nested(vendor, wanted))
    return jsontext.with_member(text, _nested(vendor, wanted))


def without_server(vendor: str, path: Path, text: str, command: Sequence[str], *, force: bool = False) -> str | None:
    """The file's text without our server; None if nothing else is in the file and we made it."""
    if path.suffix == ".toml":
        return _without_block(text, force=force)
    present = _present(vendor, text)
    if present is None or not runs_us(present):
        return text
    if present != entry(vendor, path.name, command) and not force:
        raise _changed_before_removal()
    return jsontext.without_member(text, keys_of(vendor))


def registered(vendor: str, path: Path, text: str | None) -> list[str]:
    """The command that starts our server, as the file has it; empty if it has none."""
    if text is None:
        return []
    if path.suffix == ".toml":
        found: Any = _tables(text).get("mcp_servers", {}).get(SERVER)
    else:
        found = _present(vendor, text)
    return server_words(found)


def shown(vendor: str, path: Path, command: Sequence[str]) -> str:
    """Our part of the file, for a person to add by hand."""
    if path.suffix == ".toml":
        return toml_entry(command)
    return jsontext.created(_nested(vendor, entry(vendor, path.name, command)))


def _nested(vendor: str, wanted: dict[str, Any]) -> dict[str, Any]:
    outer, inner = keys_of(vendor)
    return {outer: {inner: wanted}}


def _present(vendor: str, text: str) -> Any:
    outer, inner = keys_of(vendor)
    servers = jsontext.parse(text).value.get(outer)
    return servers.get(inner) if isinstance(servers, dict) else None


def _with_block(text: str | None, wanted: str, *, force: bool) -> str:
    """The TOML text with our block: in place of the one that is there, else at the end after an empty line."""
    end = "\r\n" if text and "\r\n" in text else "\n"
    body = wanted.replace("\n", end)
    block = f"# onrecord:mcp {_digest(wanted)} (`onrecord setup` wrote this){end}{body}# onrecord:mcp end{end}"
    if not text:
        return block
    _tables(text)
    found = _BLOCK.search(text)
    if found is None:
        if SERVER in _tables(text).get("mcp_servers", {}):
            raise _taken()
        return f"{text}{end}{block}"
    if _digest(found[2].replace("\r\n", "\n")) != found[1] and not force:
        raise _changed()
    before = end if found[0].startswith(("\n", "\r")) else ""
    return text[: found.start()] + before + block + text[found.end() :]


def _without_block(text: str, *, force: bool) -> str | None:
    found = _BLOCK.search(text)
    if found is None:
        return text
    if _digest(found[2].replace("\r\n", "\n")) != found[1] and not force:
        raise _changed_before_removal()
    return (text[: found.start()] + text[found.end() :]) or None


def _tables(text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        raise InvalidInput(
            f"the file is not valid TOML ({problem}); it was left as it is", hint="add the server by hand",
            step="print_setup",
        ) from None  # fmt: skip


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:8]


def _changed() -> Conflict:
    return Conflict("the MCP server was changed by hand", hint="force replaces it", step="force_setup")


def _changed_before_removal() -> Conflict:
    return Conflict("the MCP server was changed by hand", hint="force removes it", step="force_remove")


def _taken() -> Conflict:
    return Conflict(
        f"the file has another MCP server named {SERVER!r}", hint="rename it, then set up again", step="force_setup"
    )
