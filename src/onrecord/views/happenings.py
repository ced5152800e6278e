"""What happened, from the turns and tools alone: for a reader of a session in which no agent wrote anything down.

What was asked last, what the agent was doing, the commands that ran and how they ended, the files it changed, the
commits it made, and its last words. It knows tools by what they are given (a command, a path), not by their vendor.
"""

from __future__ import annotations

import re
from collections import deque

from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple
from onrecord.log.items import text_of
from onrecord.views.conversations import SUBLANE
from onrecord.views.render import one_line
from onrecord.views.transcript import ABANDONED, COMMITTED, RUNNING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from onrecord.log.item_values import Item, ToolCall
    from onrecord.views.transcript import Turn

COMMANDS_SHOWN = 8
"""How many of the last commands are listed."""
FILES_SHOWN = 12
"""How many of the last changed files are listed."""
COMMITS_SHOWN = 5
AGENTS_SHOWN = 8
"""How many agents are quoted, besides the one that spoke last: those that spoke last before it."""
_LINE = 200
_COMMAND_NAMES = ("command", "cmd", "script")
PATH_NAMES = ("file_path", "filePath", "path", "absolute_path", "notebook_path", "target_file")
_CHANGES = re.compile(r"(?i)write|edit|replace|create|patch|delete|remove|rename|move")
_PATCHED = re.compile(r"(?m)^\*\*\* (?:Add File|Update File|Delete File|Move to): (.+?)\s*$")
_EXIT = re.compile(r"(?i)(?:exit(?:ed)?(?: with)?(?: exit)?[ _-]?(?:code|status)|status code)\D{0,3}?(-?\d{1,9})\b")
_COMMITTED = re.compile(r"(?m)^\[[^\]\n]* ([0-9a-f]{7,40})\] (.+)$")
_MESSAGE = re.compile(r"""git commit\b.*?(?:-[a-z]*m|--message)[ =]?(["'])(.+?)\1""", re.DOTALL)


class Ran(NamedTuple):
    """A command that ran."""

    command: str
    ended: str
    """How it ended: an exit code, "failed", "did not end" or, if nothing says so, empty."""
    output: str = ""


class Recent(NamedTuple):
    """The end of the log, beyond the facts."""

    turns: list[Turn]
    """The newest turns of any agent, in order; provisional ones too."""
    tools: list[Mapping[str, Any]]
    """What hooks recorded of tools, in order: payloads of `tool.used`, each with its `call` and its `agent`."""


class Said(NamedTuple):
    """What one agent was asked and what came of it."""

    agent: str
    asked: str
    doing: str
    words: str
    state: str
    """The status of its last turn."""


class Told(NamedTuple):
    """What happened, as data."""

    said: list[Said]
    """What each agent was asked and said; the one that was at work last is the last."""
    commands: list[Ran]
    files: list[str]
    commits: list[str]


def told(recent: Recent) -> Told:
    """What the end of the log says."""
    turns = [turn for turn in recent.turns if turn.status != ABANDONED]
    lanes: dict[str, list[Turn]] = {}
    for turn in turns:
        if SUBLANE not in turn.agent:
            lanes[turn.agent] = [*lanes.pop(turn.agent, ()), turn]
    commands: list[Ran] = []
    files: list[object] = []
    hooks = {str(used.get("call")): used for used in recent.tools}
    seen = paired(turns, hooks)
    for turn in turns:
        answers = {item.get("call"): item for item in turn.items if item["role"] == "tool"}
        for call in calls_of(turn.items):
            used = hooks.get(seen.get(str(call.get("id")), ""), {})
            answer = answers.get(call.get("id"))
            refused = answer is not None and answer.get("error")
            files += used.get("paths") or (() if refused else changed_by(call))
            if command := command_of(call.get("arguments")):
                ran = _ran(command, answer, running=turn.status == RUNNING)
                known = used.get("exit_code")  # a vendor's transcript often says only that it did not fail
                commands.append(ran if ran.ended or known is None else ran._replace(ended=f"exit {known}"))
    alone = hooks.keys() - seen.values()
    for key, used in hooks.items():
        if key in alone:
            files += used.get("paths") or () if used.get("act") == "edit" else ()
            if used.get("command"):
                code = used.get("exit_code")
                commands.append(Ran(str(used["command"]), "" if code is None else f"exit {code}"))
    said = [_said(lane) for lane in lanes.values()]
    return Told(said, commands, list(dict.fromkeys(map(str, files))), _commits(commands))


def _said(lane: list[Turn]) -> Said:
    last = lane[-1]
    asked = next((one for turn in reversed(lane) if (one := _asked(turn.items))), "")
    words = next((one for turn in reversed(lane) if (one := _words(turn.items))), "")
    doing = _doing(last.items) if last.status != COMMITTED else ""
    return Said(last.agent, asked, doing, words, last.status)


def lines_of(recent: Recent, commands: int = COMMANDS_SHOWN) -> list[str]:
    """The same in lines, the most useful first; `commands` is how many of the last commands are listed."""
    one = told(recent)
    lines = []
    if one.said:
        last = one.said[-1]
        lines += [f"asked last: {_line(last.asked)}"] if last.asked else []
        lines += [_doing_line(last)] if last.doing else []
        lines += [f"last words: {_line(last.words)}"] if last.words else []
    for other in reversed(one.said[-AGENTS_SHOWN - 1 : -1]):
        lines += [f"{other.agent} was asked: {_line(other.asked)}"] if other.asked else []
        lines += [_doing_line(other)] if other.doing else []
        lines += [f"last words of {other.agent}: {_line(other.words)}"] if other.words else []
    lines += _command_lines(one.commands)[-commands:]
    if one.files:
        shown = one.files[-FILES_SHOWN:]
        more = f" and {len(one.files) - len(shown)} more" if len(one.files) > len(shown) else ""
        lines.append(f"files changed: {', '.join(shown)}{more}")
    return lines + [f"commit {_line(commit)}" for commit in one.commits[-COMMITS_SHOWN:]]


def _command_lines(commands: list[Ran]) -> list[str]:
    """A line for each command that ended as it did, where it last ran."""
    times: dict[str, int] = {}
    for ran in commands:
        line = f"ran: {_line(ran.command)}" + (f" ({ran.ended})" if ran.ended else "")
        times[line] = times.pop(line, 0) + 1
    return [line + (f", {count} times" if count > 1 else "") for line, count in times.items()]


def _doing_line(said: Said) -> str:
    return f"{said.agent} was doing ({said.state}): {_line(said.doing)}"


def _line(text: str) -> str:
    return one_line(text, _LINE)


def calls_of(items: Iterable[Item]) -> Iterator[ToolCall]:
    """The tool calls of a turn."""
    for item in items:
        yield from item.get("tool_calls") or ()


def paired(turns: Iterable[Turn], hooks: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """The key of the hook's record of each call, by the call's id.

    The key is that id. The hooks of some vendors (Gemini, Copilot) do not tell it: then the record belongs to the
    agent's first call without one that ran the same command or changed the same file.
    """
    found: dict[str, str] = {}
    free: dict[tuple[str, str], deque[ToolCall]] = {}
    for turn in turns:
        agent = turn.agent.partition(SUBLANE)[0]
        for call in calls_of(turn.items):
            id_ = str(call.get("id"))
            if id_ in hooks:
                found[id_] = id_
            for mark in _marks(command_of(call.get("arguments")), changed_by(call)) if id_ not in hooks else ():
                free.setdefault((agent, mark), deque()).append(call)
    for key, used in hooks.items():
        for mark in _marks(used.get("command"), used.get("paths")) if key not in found else ():
            waiting = free.get((used.get("agent", ""), mark))
            if waiting:
                found[str(waiting.popleft().get("id"))] = key
                break
    return found


def _marks(command: Any, paths: Any) -> list[str]:
    """By what a call is known without its id: its command, or the files it changed, however their paths are written."""
    if command:
        return [f"$ {command}"]
    return [str(path).rpartition("/")[2] for path in paths] if isinstance(paths, list) else []


def command_of(arguments: Any) -> str:
    """The command that a tool call runs; empty if it runs none."""
    given = next((arguments[name] for name in _COMMAND_NAMES if name in arguments), "") \
        if isinstance(arguments, dict) else ""  # fmt: skip
    return " ".join(map(str, given)) if isinstance(given, list) else str(given or "")


def changed_by(call: ToolCall) -> list[str]:
    """The files that a tool call changes, by the name of the tool and its arguments."""
    arguments = call.get("arguments")
    text = arguments if isinstance(arguments, str) else ""
    if isinstance(arguments, dict):
        text = next((one for one in arguments.values() if isinstance(one, str) and "*** " in one[:200]), "")
        if _CHANGES.search(str(call.get("name"))):
            return [str(arguments[name]) for name in PATH_NAMES if arguments.get(name)][:1] or _PATCHED.findall(text)
    return _PATCHED.findall(text) if "*** Begin Patch" in text else []


def _ran(command: str, answer: Item | None, *, running: bool) -> Ran:
    if answer is None:
        return Ran(command, "has no result yet" if running else "did not end")
    output = text_of(answer)
    code = exit_code_in(output)
    ended = f"exit {code}" if code is not None else "failed" if answer.get("error") else ""
    return Ran(command, ended, output)


def exit_code_in(output: str) -> str | None:
    """The exit code that a tool's output names, as vendors write it."""
    code = _EXIT.search(output)
    return code[1] if code else None


def _commits(commands: list[Ran]) -> list[str]:
    found = []
    for ran in commands:
        if "git" in ran.command and "commit" in ran.command and ran.ended in ("", "exit 0"):
            made = [f"{digest}: {message}" for digest, message in _COMMITTED.findall(ran.output)]
            named = _MESSAGE.search(ran.command)
            found += made or ([named[2]] if named else [])
    return found


def _asked(items: list[Item]) -> str:
    return next((text for item in items if item["role"] == "user" and (text := text_of(item).strip())), "")


def _words(items: list[Item]) -> str:
    said = (item for item in reversed(items) if item["role"] == "assistant" and not item.get("thinking"))
    return next((text for item in said if (text := text_of(item).strip())), "")


def _doing(items: list[Item]) -> str:
    """The last call of a turn that was not finished, or what it answered to."""
    for item in reversed(items):
        for call in reversed(item.get("tool_calls") or ()):
            return f"{call.get('name')} {command_of(call.get('arguments')) or ', '.join(changed_by(call))}".strip()
    return "answering" if _words(items) else "nothing was answered yet" if items else ""
