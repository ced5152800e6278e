"""The command line: find the verb, load only its module, map errors to exit codes.

Every call imports this module, so it imports almost nothing; `onrecord version` needs nothing else.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.surfaces.cli.verbs import Verb


def main(arguments: Sequence[str]) -> int:
    """Run one command; the result is the exit code."""
    words = list(arguments)
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
        _tell_supervisor(problem)
    return status


def _tell_supervisor(problem: Exception) -> None:
    """Tell a team's supervisor why the agent it started did not come up."""
    import os

    from onrecord.environment import FAILURE_VARIABLE

    if os.environ.get(FAILURE_VARIABLE):
        from onrecord.crew.failures import write_failure

        write_failure(os.environ[FAILURE_VARIABLE], problem)


def _run(words: list[str]) -> int:
    if words in (["version"], ["--version"], ["-V"]):
        from onrecord import __version__

        sys.stdout.write(f"onrecord {__version__}\n")
        return 0
    from onrecord.surfaces.cli.catalogue import CHOOSING, find
    from onrecord.surfaces.cli.words import split

    verb, rest = split(words)

    known = find(verb)
    if known.raw:
        return _load(known)(rest)
    from onrecord.surfaces.cli.shared.call import Call, wants_help

    if wants_help(rest):
        from onrecord.surfaces.cli.help import help_of

        return help_of(known, next((word for word in rest if not word.startswith("-")), ""))
    call = Call(known, rest)
    if known.name in CHOOSING and call.output.terminal:
        from onrecord.surfaces.cli.shared.choosing import asking

        call.ask = asking(call)
    try:
        return _load(known)(call)
    finally:
        call.close()


def _load(verb: Verb) -> Callable[[Any], int]:
    __import__(verb.module)  # importlib would be nicer, but is one more module to load
    function: Callable[[Any], int] = getattr(sys.modules[verb.module], verb.function)
    return function


def hook(call: Call) -> int:
    """A hook is answered before the command line is loaded; only one with wrong arguments gets here."""
    from onrecord.surfaces.cli.shared.exits import UsageError

    raise UsageError("`onrecord hook` takes a vendor and an event; only --store and --project may precede `hook`",
                     hint=call.verb.example)  # fmt: skip


def _stop_writing() -> None:
    """The reader of the output is gone; writing the buffer at exit would fail."""
    import os

    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    except (OSError, ValueError):
        return
    finally:
        os.close(nowhere)
