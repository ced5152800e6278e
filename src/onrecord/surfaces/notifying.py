"""Notifying a person: a bell, a message on the desktop, or a command of theirs.

`[notify]` in the settings says how and of what. Each notice is sent once, however many processes see the reason, and
not too many at once: a small file of this user on this machine has those that were sent. Nothing here can harm an
agent: programs run in a detached process with a deadline, the terminal is written without waiting, and every failure
ends as a line for `onrecord doctor`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord import machine
from onrecord.environment import AGENT_VARIABLE, MEMBER_VARIABLE, SESSION_VARIABLE, SPAWN_VARIABLE
from onrecord.machine.wall_clock import local_time
from onrecord.surfaces import trouble
from onrecord.views.needs import CRASHED, LIMIT, QUESTION, STOPPED, WAITS
from onrecord.views.render import iso, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from onrecord.session.handle import Session
    from onrecord.views.needs import Need

COMMAND_SECONDS = 10.0
"""How long a notifying program may run; then it is killed."""
SENT_LIMIT = 10
"""At most so many notices within a minute; the next one says how many were left out."""
SENT_SECONDS = 60.0
END_SECONDS = 30.0
"""The end of one agent's work is reported once in this time: a hook and a wrapper may both see it."""
REMEMBERED = 500
"""How many notices are remembered as sent."""
LOCK_SECONDS = 0.5
"""How long to wait for another process that sends a notice at the same time."""
TEXT_WIDTH = 200
WAITING, ENDS, LIMITS, CRASHES = "waits", "ends", "limits", "crashes"
EVENTS = {WAITS: WAITING, QUESTION: WAITING, LIMIT: LIMITS, CRASHED: CRASHES, STOPPED: CRASHES}
"""The needs that a person is notified of, and the name of each in the settings."""
PRIVATE = (SESSION_VARIABLE, AGENT_VARIABLE, SPAWN_VARIABLE, MEMBER_VARIABLE)
"""What a notifying program does not inherit: it is not one of the agent's processes, and is not ended with them."""
_RUNNING: list[subprocess.Popen[bytes]] = []


class Notice(NamedTuple):
    """One message for a person."""

    event: str
    key: str
    """The same thing has the same key."""
    session: str
    name: str
    project: str
    agent: str
    text: str
    command: str
    """The one command that helps."""
    until: int | None = None

    def as_data(self, now: float, left_out: int) -> dict[str, Any]:
        """What a notifying program gets on standard input."""
        return {
            "schema_version": 1, "kind": "notice", "event": self.event, "session": self.session, "name": self.name,
            "project": self.project, "agent": self.agent or None, "text": self.text, "command": self.command,
            "until": iso(self.until) if self.until else None, "at": iso(int(now * 1e6)), "left_out": left_out,
        }  # fmt: skip


# What is sent


def tell_needs(session: Session) -> None:
    """Notify the person of what a session needs them for now, if they want that."""
    _safely(lambda: _tell_needs(session))


def tell_stop(session: Session) -> None:
    """Notify the person that an agent stopped: it asks something, or it did what it was asked."""
    _safely(lambda: _tell_stop(session))


def tell_end(session: Session, text: str) -> None:
    """Notify the person that an agent did what it was asked."""
    tell(session, ENDS, f"{session.agent}/end", text)


def tell_passed(session: Session, position: int) -> None:
    """Notify the person that the limit which stopped an agent has passed, and that it continues."""
    tell(session, LIMITS, f"{position}/passed", f"the limit of {session.agent} has passed; it continues")


def tell(session: Session, event: str, key: str, text: str, *, agent: str = "", command: str = "") -> None:
    """Notify the person of something about a session; the key is the same for the same thing."""
    helps = command or f"onrecord show {session.name}"
    _safely(lambda: _tell_wanted(_notice(session, event, key, (agent or session.agent, text, helps))))


def _tell_wanted(notice: Notice) -> None:
    chosen = _chosen()
    if chosen and notice.event in chosen.get("events", (notice.event,)):
        _tell(chosen, notice)


def _safely(tell: Callable[[], None]) -> None:
    """No failure to notify leaves this module."""
    try:
        tell()
    except Exception as problem:  # noqa: BLE001  # the agent's work is worth more than a notice
        trouble.note(f"a person could not be notified: {type(problem).__name__}: {problem}", None, ("notify",))


def _chosen() -> dict[str, Any]:
    from onrecord.connection import notify_settings

    return notify_settings()


def _tell_needs(session: Session) -> None:
    if not _chosen():
        return
    from onrecord.session.standing import standing_of

    for need in standing_of(session.refresh()).needs:
        if need.kind in EVENTS:
            _tell_wanted(_of_need(session, EVENTS[need.kind], need))


def _tell_stop(session: Session) -> None:
    if not _chosen():
        return
    from onrecord.session.standing import standing_of

    asks = [need for need in standing_of(session.refresh()).needs if need.kind == QUESTION]
    for need in asks:
        _tell_wanted(_of_need(session, EVENTS[need.kind], need))
    if not asks:
        tell_end(session, f"{session.agent} finished what it was asked")


def _of_need(session: Session, event: str, need: Need) -> Notice:
    until = need.until if need.until and need.until > session.clock() * 1e6 else None
    text = need.why + (f", until {local_time(until, int(session.clock() * 1e6))}" if until else "")
    passed = "" if until or need.kind != LIMIT else "/passed"
    notice = _notice(session, event, f"{need.position}{passed}", (need.agent, text, need.command))
    return notice._replace(until=until)


def _notice(session: Session, event: str, key: str, said: tuple[str, str, str]) -> Notice:
    head, (agent, text, command) = session.head, said
    place = head.session, head.name, head.project
    return Notice(event, f"{head.session}/{key}", *place, agent, text[: 4 * TEXT_WIDTH], command)


def _tell(chosen: Mapping[str, Any], notice: Notice) -> None:
    now = time.time()
    left_out = _claim(notice, now)
    if left_out is None:
        return
    if chosen.get("bell"):
        _write_terminal("\a")
    programs = [list(chosen["command"])] if chosen.get("command") else []
    if chosen.get("desktop"):
        desktop = desktop_command(notice, os.environ)
        programs += [desktop] if desktop else []
        if not desktop:
            _write_terminal(terminal_message(notice, os.environ))
    if programs:
        _detach(programs, notice.as_data(now, left_out))


# Once each, and not too many


def _claim(notice: Notice, now: float) -> int | None:
    """How many notices were left out since the last one; None if this one is not sent: it was, or it is one too many.

    The file is locked meanwhile, so one of several processes that see the same thing sends the notice.
    """
    import fcntl

    from onrecord.connection import state_directory

    folder = Path(state_directory())
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    with os.fdopen(os.open(folder / "notified.json", flags, 0o600), "r+b") as file:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            except OSError:  # a system without locks (ENOLCK): at worst a notice comes twice
                break
        answer, after = decide(_known(file.read()), notice, now)
        file.seek(0)
        file.truncate()
        file.write(json.dumps(after).encode())
    return answer


def _known(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
        told = {str(key): float(at) for key, at in found["told"].items()}
        return {"told": told, "sent": [float(at) for at in found["sent"]], "left_out": int(found["left_out"])}
    except (ValueError, KeyError, TypeError, AttributeError):
        return {"told": {}, "sent": [], "left_out": 0}  # it is new, or damaged: at worst a notice is sent again


def decide(known: Mapping[str, Any], notice: Notice, now: float) -> tuple[int | None, dict[str, Any]]:
    """Whether a notice is sent (how many were left out before it; None: it is not), and what is remembered then."""
    told, sent, left_out = dict(known["told"]), list(known["sent"]), known["left_out"]
    before = told.get(notice.key)
    if before is not None and (notice.event != ENDS or now - before < END_SECONDS):
        return None, {"told": told, "sent": sent, "left_out": left_out}
    told.pop(notice.key, None)
    told[notice.key] = now
    while len(told) > REMEMBERED:
        del told[next(iter(told))]
    sent = [at for at in sent if now - at < SENT_SECONDS]
    if len(sent) >= SENT_LIMIT:
        return None, {"told": told, "sent": sent, "left_out": left_out + 1}
    return left_out, {"told": told, "sent": [*sent, now], "left_out": 0}


# Programs


def desktop_command(notice: Notice, env: Mapping[str, str]) -> list[str] | None:
    """The program that shows a message on this desktop; None if there is none."""
    from shutil import which

    title, text = one_line(f"onrecord: {notice.name}", TEXT_WIDTH), one_line(notice.text, TEXT_WIDTH)
    path = env.get("PATH")
    if program := which("terminal-notifier", path=path):
        # It takes a leading bracket for something else.
        safe = f"\\{text}" if text.startswith("[") else text
        return [program, "-title", title, "-message", safe, "-group", notice.session]
    shown = any(env.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "DBUS_SESSION_BUS_ADDRESS"))
    if shown and (program := which("notify-send", path=path)):
        # The body is markup for most desktops.
        plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return [program, "--app-name=onrecord", "--", title, plain]
    return None


def _detach(programs: Sequence[Sequence[str]], data: Mapping[str, Any]) -> None:
    """Run programs in a process of their own, which outlives this one and is not one of the agent's."""
    env = {name: value for name, value in os.environ.items() if name not in PRIVATE}
    child = subprocess.Popen(  # a list of words
        [*machine.own_program(), "__notify"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True, env=env, cwd=Path.home(), bufsize=0,
    )  # fmt: skip
    if child.stdin is not None:  # a few kilobytes: a pipe takes them without waiting
        with child.stdin:
            child.stdin.write(json.dumps({"programs": [list(words) for words in programs], "notice": data}).encode())
    _RUNNING[:] = [one for one in (*_RUNNING, child) if one.poll() is None]  # those that ended are reaped here


def run_programs(words: list[str]) -> int:
    """`onrecord __notify`: run the programs that standard input names, each with the notice, within a deadline."""
    del words
    asked = json.loads(sys.stdin.buffer.read())
    notice = json.dumps(asked["notice"], ensure_ascii=False).encode()
    for program in asked["programs"]:
        _run(program, notice)
    return 0


def _run(program: list[str], notice: bytes) -> None:
    from contextlib import suppress
    from signal import SIGKILL

    try:
        child = subprocess.Popen(  # a list of words from the user's own settings
            program, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
        )
    except OSError as problem:
        trouble.note(f"{program[0]} could not be run: {problem.strerror}", None, ("notify",))
        return
    try:
        _out, said = child.communicate(notice, timeout=COMMAND_SECONDS)
    except subprocess.TimeoutExpired:
        with suppress(OSError):
            os.killpg(child.pid, SIGKILL)
        child.communicate()
        trouble.note(f"{program[0]} took more than {COMMAND_SECONDS:.0f} s and was killed", None, ("notify",))
        return
    if child.returncode:
        last = said.decode(errors="replace").strip().rpartition("\n")[2]
        trouble.note(f"{program[0]} failed with {child.returncode}: {last}", None, ("notify",))


# The terminal


def terminal_message(notice: Notice, env: Mapping[str, str]) -> str:
    """An escape sequence that many terminals show as a message; text from an agent cannot end it."""
    title, text = one_line(f"onrecord: {notice.name}", TEXT_WIDTH), one_line(notice.text, TEXT_WIDTH)
    if env.get("VTE_VERSION") or env.get("TERM", "").startswith(("rxvt", "foot")):
        said = f"\x1b]777;notify;{title.replace(';', ',')};{text.replace(';', ',')}\x1b\\"
    else:
        said = f"\x1b]9;{title}: {text}\x1b\\"
    if env.get("TMUX"):
        doubled = said.replace("\x1b", "\x1b\x1b")
        said = f"\x1bPtmux;{doubled}\x1b\\"
    return said


def _write_terminal(text: str) -> None:
    """Write to the controlling terminal, without waiting for one that does not read."""
    try:
        terminal = os.open("/dev/tty", os.O_WRONLY | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return  # there is none
    try:
        os.write(terminal, text.encode(errors="replace"))
    except OSError:
        return
    finally:
        os.close(terminal)
