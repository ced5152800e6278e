"""The entry point: find the verb, load only its module, map errors to exit codes.

Every call imports this module, so it imports almost nothing; `onrecord version` needs nothing else.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from onrecord.surfaces.cli.catalogue import Verb

_TAKES_VALUE = frozenset({"--store", "--project", "--session", "-s", "--agent", "--limit", "-n"})
"""Options with a value that may come before the verb."""


_HASTY = ("gate", "hook")
"""The verbs that run before every tool call of every agent."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the result is the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    if arguments is None:
        _be_brief()
    try:
        status = _run(words)
        sys.stdout.flush()
    except KeyboardInterrupt:
        _stop_writing()
        return 130
    except BrokenPipeError:
        _stop_writing()
        return 141
    except Exception as problem:  # noqa: BLE001  # the one place where every error becomes an exit code
        from onrecord.surfaces.cli.shared.failures import report

        status = report(problem, words)
    if arguments is None and split(words)[0] in _HASTY:
        _end(status)
    return status


def _run(words: list[str]) -> int:
    if words in (["version"], ["--version"], ["-V"]):
        from onrecord import __version__

        sys.stdout.write(f"onrecord {__version__}\n")
        return 0
    if words[:1] == ["hook"] and not {"-h", "--help"}.intersection(words):
        from onrecord.surfaces.hook.process import main as hook

        return hook(words[1:])
    verb, rest = split(words)
    from onrecord.surfaces.cli.catalogue import find

    known = find(verb)
    if known.raw:
        return _load(known)(rest)
    from onrecord.surfaces.cli.shared.call import Call, wants_help

    if wants_help(rest):
        from onrecord.surfaces.cli.help import help_of

        return help_of(known)
    call = Call(known, rest)
    try:
        return _load(known)(call)
    finally:
        call.close()


def _be_brief() -> None:
    """A command lives for milliseconds: collecting garbage at its start and end costs a sixth of them."""
    import atexit
    import gc

    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


def _end(status: int) -> None:
    """Exit without tearing down the interpreter, which takes an eighth of a decision. Nothing is open any more."""
    import os

    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


def split(words: list[str]) -> tuple[str, list[str]]:
    """The verb and everything else; options may come before it. No verb means the overview."""
    index = 0
    while index < len(words) and words[index].startswith("-") and words[index] != "--":
        if words[index] in ("-h", "--help"):
            return "help", [word for word in words if word in ("--all", "-a")]
        if words[index] in ("-V", "--version"):
            return "version", words[:index] + words[index + 1 :]
        index += 2 if words[index] in _TAKES_VALUE else 1
    if index >= len(words):
        return "", words
    return words[index], words[:index] + words[index + 1 :]


def _load(verb: Verb) -> Callable[[Any], int]:
    __import__(verb.module)  # importlib would be nicer, but is one more module to load
    function: Callable[[Any], int] = getattr(sys.modules[verb.module], verb.function)
    return function


def _stop_writing() -> None:
    """Buffered output has no reader any more; writing it at exit would fail."""
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return
    finally:
        os.close(nowhere)
