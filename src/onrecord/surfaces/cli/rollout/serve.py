"""`onrecord rollout serve`: the recording proxy, started from the command line."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from onrecord.environment import ROLLOUT_TOKEN_VARIABLE
from onrecord.errors import InvalidInput
from onrecord.surfaces.cli.rollout.named import is_named, named, tokenizer_of
from onrecord.surfaces.cli.shared.exits import OK
from onrecord.surfaces.cli.shared.place import need, option
from onrecord.surfaces.cli.shared.tokens import checked_token, read_token

if TYPE_CHECKING:
    from onrecord.rollout.server.settings import Settings
    from onrecord.rollout.trajectory import Policy
    from onrecord.surfaces.cli.shared.call import Call

EXAMPLE = "onrecord rollout serve --upstream http://127.0.0.1:30000 --tokenizer models/policy"


def serve(call: Call, words: list[str]) -> int:
    """Serve until it is stopped."""
    need(call, words)
    place = option(call, "tokenizer", EXAMPLE)
    upstreams = call.many("upstream") or [option(call, "upstream", EXAMPLE)]
    upstream = ", ".join(upstreams)
    try:
        from onrecord.machine.http_server import listen
        from onrecord.rollout.server.app import Proxy
        from onrecord.rollout.server.loading import load_tokenizer
        from onrecord.rollout.server.serving import serve as run
    except ImportError as missing:
        raise InvalidInput(
            f"the recording proxy needs the package {missing.name}, which is not installed",
            hint='pip install "onrecord[rollout]"',
        ) from None
    settings, policy = _settings(call, upstreams).checked(), _policy(call).checked()
    if is_named(place):
        tokenizer = tokenizer_of(named(place, "tokenizer"), place)
    else:
        tokenizer = load_tokenizer(place, replace_stop=policy.max_trim_tokens > 0)

    def announce(url: str) -> None:
        if call.output.json:
            call.output.envelope("rollout_proxy", {"url": url, "upstream": upstream, "pid": os.getpid()})
        else:
            sys.stdout.write(
                f"recording proxy on {url}, {settings.dialect} engine at {upstream}, aborts: {settings.abort_policy}\n"
                f"  new session: curl -X POST {url}/sessions      Ctrl-C stops it\n"
            )
        sys.stdout.flush()

    with listen(settings.host, settings.port) as listener:  # before a store is created for nothing
        run(Proxy(call.records(), tokenizer, settings, policy), listener, announce)
    call.output.note("stopped; every session can continue later")
    return OK


def _settings(call: Call, upstreams: list[str]) -> Settings:
    from onrecord.rollout.server.settings import Settings

    chosen: dict[str, Any] = {
        "dialect": call.get("dialect"),
        "abort_policy": call.get("abort-policy"),
        "retries": call.number("retries"),
        "host": call.get("host"),
        "port": call.number("port"),
        "token": _token(call),
        "turns_limit": call.number("turns-limit"),
        "upstream_seconds": call.amount("timeout"),
        "lease_seconds": call.amount("lease-seconds"),
        "parse": _function(call, "parser"),
        "branches": "branches" in call,
        "whole_streams": "whole-streams" in call,
    }
    given = {name: value for name, value in chosen.items() if value is not None}
    return Settings(upstreams[0], more_upstreams=tuple(upstreams[1:]), hosts=tuple(call.many("allow-host")), **given)


def _policy(call: Call) -> Policy:
    from onrecord.rollout.trajectory import Policy

    chosen: dict[str, Any] = {
        "matcher": _function(call, "matcher"),
        # With branches, a request that would discard a turn is a branch, unless the user sets a limit.
        "max_rollback": call.number("max-rollback", 0 if "branches" in call else None),
        "max_trim_tokens": call.number("max-trim-tokens"),
        "new_tools": True if "new-tools" in call else None,
        "refuse_after_length": True if "refuse-after-length" in call else None,
    }
    return Policy(**{name: value for name, value in chosen.items() if value is not None})


def _function(call: Call, name: str) -> Any:
    """An option that names a function as module:name; any other text is returned as it is."""
    text = call.get(name)
    if text is None or (name == "matcher" and not is_named(text)):
        return text
    return named(text, name)


def _token(call: Call) -> str | None:
    """The token clients must send: from a file, or the environment; None if there is none."""
    place, said = call.get("token-file"), os.environ.get(ROLLOUT_TOKEN_VARIABLE)
    if place is not None:
        return read_token(place)
    return checked_token(said, ROLLOUT_TOKEN_VARIABLE) if said else None
