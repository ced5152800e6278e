"""The entry point of the process: a hook goes to `surfaces/hook`, every other command to `surfaces/cli`.

The two do not know each other. Every command passes through here, so this module imports next to nothing.
"""

from __future__ import annotations

import sys

_HASTY = "gate"
"""Besides hooks, the verb that runs before every tool call of every agent."""
_BEFORE_A_HOOK = ("--store", "--project")
"""The options that may precede `hook`; each takes a value."""


def main() -> int:
    """Run one command; the result is the exit status."""
    words = sys.argv[1:]
    _tune()
    chosen = _before_hook(words)
    rest = words[len(chosen) :]
    if rest[:1] == ["hook"] and not {"-h", "--help"}.intersection(words):
        from onrecord.surfaces.hook.process import main as hook

        try:
            status = hook(rest[1:], dict(zip(chosen[::2], chosen[1::2], strict=True)))
        except KeyboardInterrupt:
            return 130
        _leave(status)
    from onrecord.surfaces.cli.main import main as command
    from onrecord.surfaces.cli.words import split

    status = command(words)
    if split(words)[0] == _HASTY:
        _leave(status)
    return status


def _before_hook(words: list[str]) -> list[str]:
    """The words in front of `hook`, if only options that a hook takes precede it."""
    at = 0
    while at + 1 < len(words) and words[at] in _BEFORE_A_HOOK:
        at += 2
    return words[:at] if words[at : at + 1] == ["hook"] else []


def _tune() -> None:
    """A command lives for some milliseconds. Garbage collection at its start and end would take a sixth of them."""
    import atexit
    import gc

    gc.set_threshold(100_000)
    atexit.register(gc.freeze)


def _leave(status: int) -> None:
    """Exit without finalising the interpreter, which takes an eighth of a decision. Nothing is open by now."""
    import os

    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
