"""`onrecord run -- COMMAND`: the attempt is recorded before the command starts, its outcome when it ends."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from onrecord.environment import SESSION_VARIABLE
from onrecord.errors import NameTaken, SessionNotFound
from onrecord.log.head import refuse_work
from onrecord.log.names import check_name
from onrecord.surfaces.cli.shared.call import pairs
from onrecord.surfaces.cli.shared.exits import NotInitialised
from onrecord.surfaces.cli.shared.output import labelled
from onrecord.surfaces.cli.shared.place import look_at_code, root_of, seconds
from onrecord.surfaces.cli.work import state_file
from onrecord.surfaces.cli.work.attempts import attempt_data, metrics_of
from onrecord.views.attempts import FAILED, INTERRUPTED
from onrecord.work.attempting import Wanted, retold, run_attempt
from onrecord.work.running import show_rest

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call
    from onrecord.work.attempting import Finished

SCRIPTS = (".py", ".sh", ".js", ".ts", ".rb", ".pl", ".r", ".R", ".jl")
"""How the names of scripts end."""


def run(call: Call) -> int:
    """Run a command as an attempt; its exit code is passed on."""
    wanted = Wanted(
        metrics=tuple(metrics_of(call).items()), metrics_file=call.get("metrics-file"),
        patterns=tuple(pairs(call.many("metric-pattern"), "--metric-pattern NAME=REGEX")),
        files=tuple(call.many("expect-file")), allow_traceback="allow-traceback" in call,
        allow_nan="allow-nan" in call,
    )  # fmt: skip
    timeout = seconds(call)
    session = _session(call)
    refuse_work(session.head)
    look_at_code(call, session)
    warnings: list[str] = []

    def warn(line: str) -> None:
        warnings.append(line)
        if not call.output.json:
            # Also with --quiet: repeating a failure costs more than reading one line.
            sys.stderr.write(labelled("warning", line))
            sys.stderr.flush()

    done = run_attempt(
        session, call.words, root=root_of(session), cwd=Path(os.curdir), wanted=wanted, timeout=timeout,
        strict="strict" in call, fix=call.get("fix"), show=not call.output.json, warn=warn,
        begun=lambda: state_file.after(call, session),
    )  # fmt: skip
    state_file.after(call, session)  # before the rest is shown: a slow reader must not delay the outcome
    show_rest(done.ran)
    if call.output.json:
        attempt = session.views.attempts.all()[done.number - 1]
        about = {
            "position": done.position,
            "warnings": warnings,
            "output": done.ran.output,
            "timed_out": done.ran.timed_out,
        }
        known = {"known_failure": done.known["number"] if done.known else None}
        call.output.envelope("attempt", attempt_data(attempt) | about | known)
    else:
        _tell(call, done)
    return done.exit_code


def _session(call: Call) -> Session:
    """The chosen session. `--open` makes one where there is none; without it the error offers that."""
    wanted = call.get("open")
    if wanted:
        records = call.records()
        try:
            session = records.create(check_name(wanted), agent=call.agent(), objective=None)
        except NameTaken:
            return records.get(wanted, agent=call.agent())
        call.output.note(f"opened session {wanted}")
        return session
    try:
        return call.session()
    except (SessionNotFound, NotInitialised) as missing:
        if call.get("session") or os.environ.get(SESSION_VARIABLE):
            raise
        line = " ".join(shlex.quote(word) for word in call.words)
        name = _name_for(call.words)
        missing.step = ""
        missing.hint = f"open a session for it: `onrecord run --open {name} -- {line}`"
        raise


def _name_for(command: list[str]) -> str:
    """A name for a session, from the name of a program; of a script, where the program only runs one."""
    script = next((word for word in command[1:] if Path(word).suffix in SCRIPTS), "")
    program = Path(script).stem if script else Path(command[0]).name
    kept = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in program.lower())
    return kept.strip("-")[:40] or "work"


def _tell(call: Call, done: Finished) -> None:
    """The command's own output goes to stdout; what was recorded goes to stderr."""
    numbers = ", ".join(f"{name} {value:g}" for name, value in done.metrics.items())
    about = done.error or numbers
    ended = f"{done.status} after {done.ran.seconds:.1f} s" + (f": {about}" if about else "")
    if done.status == INTERRUPTED:  # the reason says after how long
        ended = about if about.startswith(INTERRUPTED) else f"{INTERRUPTED}: {about}"
    call.output.note(f"attempt {done.number} {ended} [{done.evidence}]")
    if done.known:
        call.output.note(f"the same error happened before: {retold(done.known)}")
    elif done.status == FAILED:
        call.output.note(f'when you have fixed it: `onrecord attempt correct {done.number} --fix "..."`')
