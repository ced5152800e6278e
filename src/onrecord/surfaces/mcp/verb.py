"""`onrecord mcp`: serve the record to the client that started this process, or with --http to several."""

from __future__ import annotations

import gc
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from onrecord.connection import state_directory
from onrecord.environment import MCP_TOKEN_VARIABLE
from onrecord.errors import InvalidInput
from onrecord.machine.files import PRIVATE_MODE, write_file
from onrecord.surfaces.cli.shared.exits import OK, UsageError
from onrecord.surfaces.cli.shared.tokens import checked_token, read_token
from onrecord.surfaces.mcp.finding import Sessions

if TYPE_CHECKING:
    import socket
    from types import FrameType

    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.surfaces.mcp.serving import Service

DEFAULT_PORT = 8765
TOKEN_FILE = "mcp-token"
TOKEN_BYTES = 32
HOST = "127.0.0.1"


def mcp(call: Call) -> int:
    """Serve until the client leaves, or with --http until Ctrl-C."""
    for option in ("port", "token-file"):
        if option in call and "http" not in call:
            raise UsageError(f"--{option} is for --http", hint=f"for example: `{call.verb.example}`")
    try:
        from onrecord.surfaces.mcp.serving import Service
    except ImportError as missing:
        from onrecord.setup.commands import installing_with

        raise InvalidInput(
            f"the MCP server needs the package {missing.name}, which is not installed",
            hint=f"`{installing_with('mcp')}`",
        ) from None
    gc.set_threshold(700, 10, 10)  # this process lives long; see `entry`
    sessions = Sessions(*_store_and_project(call))
    try:
        if "http" in call:
            return _over_http(call, Service(sessions, local=False))
        _over_stdio(Service(sessions, local=True))
    finally:
        sessions.close()
    return OK


def _store_and_project(call: Call) -> tuple[str | None, str | None]:
    """As the options name them. A desktop application starts its servers anywhere, so a project's directory is entered.

    Paths in calls are relative to it, and git is asked there.
    """
    store, project = call.get("store"), call.get("project")
    if not project:
        return store, project
    from onrecord.work.project import spelled_out

    project = spelled_out(project)
    if Path(project).is_dir():
        store = str(Path(store).absolute()) if store and "://" not in store else store
        os.chdir(project)
    return store, project


def _over_stdio(service: Service) -> None:
    import anyio

    from onrecord.surfaces.mcp.serving import on_stdio

    if sys.stdin.isatty():
        sys.stderr.write("onrecord mcp: an MCP client starts this and speaks JSON on standard input; Ctrl-C stops it\n")

    def stop(number: int, _frame: FrameType | None) -> NoReturn:
        # A thread of the SDK waits for input and cannot be woken; what was answered is durable.
        service.sessions.close()
        os._exit(128 + number)

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, stop)
    anyio.run(on_stdio, service)


def _over_http(call: Call, service: Service) -> int:
    from onrecord.machine.http_server import listen
    from onrecord.surfaces.mcp.http import serve

    token, where = _token(call)
    with listen(HOST, call.number("port", DEFAULT_PORT) or 0) as listener:
        serve(service, listener, token, lambda: _announce(call, listener, where))
    call.output.note("stopped; everything that was answered is on record")
    return OK


def _announce(call: Call, listener: socket.socket, where: str) -> None:
    from onrecord.machine.http_server import url_of
    from onrecord.surfaces.mcp.http import PATH

    url = f"{url_of(listener, HOST)}{PATH}"
    if call.output.json:
        call.output.envelope("mcp_server", {"url": url, "token_file": where, "pid": os.getpid()})
    else:
        sys.stdout.write(f"MCP server on {url}      Ctrl-C stops it\n")
        said = f"the token in {where}" if where else f"the token in {MCP_TOKEN_VARIABLE}"
        sys.stdout.write(f"  clients send the header `Authorization: Bearer TOKEN` with {said}\n")
    sys.stdout.flush()


def _token(call: Call) -> tuple[str, str]:
    """The token that clients must send, and the file it is in. It is never on a command line, where anyone reads it."""
    place = call.get("token-file")
    if place is None and os.environ.get(MCP_TOKEN_VARIABLE):
        return checked_token(os.environ[MCP_TOKEN_VARIABLE], MCP_TOKEN_VARIABLE), ""
    path = Path(place).expanduser() if place else Path(state_directory()) / TOKEN_FILE
    if place is None and not path.exists():
        from onrecord import machine

        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_file(path, [machine.entropy(TOKEN_BYTES).hex().encode() + b"\n"], mode=PRIVATE_MODE)
    return read_token(path), str(path)
