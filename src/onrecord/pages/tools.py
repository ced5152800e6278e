"""Tool calls of agents, folded: commands with exit codes, edits as diffs, files that were read, and any other tool.

Tools are recognised by what they are given (a command, a path, an old and a new text), not by their vendor.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.pages import diffs
from onrecord.pages.media import draw_parts
from onrecord.pages.text import counted, seconds, short, shown, terminal, without_colours
from onrecord.views.happenings import PATH_NAMES, changed_by, command_of, exit_code_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from onrecord.log.item_values import Item, ToolCall
    from onrecord.pages.options import Options

TITLE_WIDTH = 140
OPEN_LINES = 24
"""A diff, or the output of a command that failed, is unfolded if it has at most this many lines."""
_SAYS_CODE = 300
_FAILED = "failed"
_MINUS = "\u2212"
_SHELL = re.compile(r"(?:/\S*/)?(?:ba|z|da)?sh -l?c (?=\S)")
_OLD = ("old_string", "old_str", "oldText", "old")
_NEW = ("new_string", "new_str", "newText", "new")
_WHOLE = ("content", "file_text", "contents", "text")
_TASK_NAMES = ("content", "step", "title", "text", "description")
_TASK_MARKS = {"completed": "☑", "in_progress": "▸"}
_PATCHES = ("patch", "patchText", "input", "diff")


class Shown(NamedTuple):
    """What a folded call shows: title, badge and body are HTML; the rest is text."""

    title: str
    badge: str = ""
    mood: str = ""
    """`g` is good, `b` is bad."""
    body: str = ""
    is_open: bool = False
    output: str = ""
    """The result, as text."""
    diff: Sequence[str] = ()
    command: str = ""


def draw_call(
    call: ToolCall, answer: Item | None, used: Mapping[str, Any] | None, options: Options, *, ended: bool
) -> str:
    """A tool call with its result, folded; `used` is a hook's record of it, `ended` says that no result can come."""
    made = shown_call(call, answer, used, options, ended=ended)
    pictures = draw_parts(answer.get("content"), options, only_media=True) if answer else ""
    return _fold(made._replace(body=made.body + pictures))


def shown_call(
    call: ToolCall, answer: Item | None, used: Mapping[str, Any] | None, options: Options, *, ended: bool
) -> Shown:
    """What a tool call shows."""
    arguments = call.get("arguments")
    output = text_of(answer)
    if command := _typed(command_of(arguments) or str((used or {}).get("command") or "")):
        made = _command(command, answer, output, used, options, ended=ended)
    elif change := _change(call, arguments):
        made = _edit(call, change, answer, output, options)
        output = output if made.badge == _FAILED else ""
    else:
        made = _other(call, arguments, answer, output, options, ended=ended)
    return made._replace(output=without_colours(output) if options.output else "", command=command)


def draw_used(used: Mapping[str, Any]) -> str:
    """A tool call of which only a hook's record exists."""
    command, code = used.get("command"), used.get("exit_code")
    badge = "" if code is None else f"exit {shown(code)}"
    mood = "" if code is None else "g" if code == 0 else "b"
    if command:
        return _fold(Shown(f"$ {short(command, TITLE_WIDTH)}", badge, mood, _long(str(command))))
    paths = ", ".join(map(str, used.get("paths") or ()))
    return _fold(
        Shown(f"{short(used.get('act') or '', 20)} {short(paths or used.get('tool') or '', TITLE_WIDTH)}", badge, mood)
    )


def text_of(item: Item | None) -> str:
    """The text of an item; images are not part of it."""
    content = item.get("content") if item else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join([str(part.get("text") or "") if isinstance(part, dict) else str(part) for part in parts]).strip(
        "\n"
    )


def _fold(made: Shown) -> str:
    badge = f' <span class="x {made.mood}">{made.badge}</span>' if made.badge else ""
    head = f"<code>{made.title}</code>{badge}"
    if not made.body:
        return f'<div class="tool"><div class="line">{head}</div></div>'
    state = " open" if made.is_open else ""
    return f'<details class="tool"{state}><summary>{head}</summary>{made.body}</details>'


def _command(
    command: str, answer: Item | None, output: str, used: Mapping[str, Any] | None, options: Options, *, ended: bool
) -> Shown:
    code: object = (used or {}).get("exit_code")
    if code is None and answer is not None:
        # Vendors say it first or last; what a command prints in between may name other exit codes.
        code = exit_code_in(output[:_SAYS_CODE]) or exit_code_in(output[-_SAYS_CODE:])
    failed = bool(answer and answer.get("error")) or (code is not None and str(code) != "0")
    badge, mood = (_FAILED, "b") if failed else ("", "")
    if code is not None:
        badge, mood = f"exit {shown(code)}", "b" if failed else "g"
    if answer is None:
        badge, mood = ("did not end", "b") if ended else ("running", "")
    if (took := (used or {}).get("seconds")) and isinstance(took, int | float):
        badge = f"{badge} · {seconds(took)}" if badge else seconds(took)
    body = _long(command) + _output(output, options)
    lines = output.count("\n") + 1
    return Shown(f"$ {short(command, TITLE_WIDTH)}", badge, mood, body, failed and lines <= OPEN_LINES)


def _typed(command: str) -> str:
    """A command as a person would type it, without the shell around it."""
    found = _SHELL.match(command)
    return command[found.end() :] if found else command


def _long(command: str) -> str:
    """The whole command, if its title cannot show it."""
    return f'<pre class="command">{terminal(command)}</pre>' if len(command) > TITLE_WIDTH or "\n" in command else ""


def _output(output: str, options: Options) -> str:
    if not output.strip():
        return ""
    if not options.output:
        return f'<p class="left-out">{counted(output.count(chr(10)) + 1, "line")} of output left out</p>'
    return f'<pre class="out">{terminal(output)}</pre>'


def _change(call: ToolCall, arguments: Any) -> tuple[str, diffs.Diff] | None:
    """The file that a call changes, and how."""
    paths = ", ".join(changed_by(call))
    if isinstance(arguments, str):
        return (paths, diffs.of_patch(arguments)) if "*** Begin Patch" in arguments else None
    if not isinstance(arguments, dict):
        return None
    edits = arguments.get("edits")
    if isinstance(edits, list) and edits and all(isinstance(one, dict) for one in edits):
        return paths, diffs.joined([diffs.of_texts(_first(one, _OLD) or "", _first(one, _NEW) or "") for one in edits])
    old, new = _first(arguments, _OLD), _first(arguments, _NEW)
    if paths and (old is not None or new is not None):
        return paths, diffs.of_texts(old or "", new or "")
    patch = _first(arguments, _PATCHES)
    if patch is not None and ("*** Begin Patch" in patch or "\n@@" in patch or patch.startswith(("@@", "--- "))):
        return paths, diffs.of_patch(patch)
    whole = _first(arguments, _WHOLE)
    return (paths, diffs.of_texts("", whole)) if paths and whole is not None else None


def _first(arguments: Mapping[str, Any], names: tuple[str, ...]) -> str | None:
    return next((arguments[name] for name in names if isinstance(arguments.get(name), str)), None)


def _edit(call: ToolCall, change: tuple[str, diffs.Diff], answer: Item | None, output: str, options: Options) -> Shown:
    paths, diff = change
    failed = bool(answer and answer.get("error"))
    badge = _FAILED if failed else f"+{diff.added} {_MINUS}{diff.removed}"
    body = f'<pre class="diff">{diffs.diff_lines(diff.lines)}</pre>' if diff.lines else ""
    body += _output(output, options) if failed else ""
    title = f"edit {short(paths, TITLE_WIDTH)}" if paths else f"{short(call.get('name') or 'edit', 60)}"
    return Shown(title, badge, "b" if failed else "g", body, len(diff.lines) <= OPEN_LINES, diff=diff.lines)


def _other(call: ToolCall, arguments: Any, answer: Item | None, output: str, options: Options, *, ended: bool) -> Shown:
    name = str(call.get("name") or "tool")
    tasks = _tasks(arguments)
    given = tasks[0] if tasks else _given(arguments)
    badge, mood = (counted(output.count("\n") + 1, "line"), "") if output.strip() else ("", "")
    if answer is None:
        badge, mood = ("no result", "b") if ended else ("running", "")
    elif answer.get("error"):
        badge, mood = _FAILED, "b"
    whole = f'<pre class="command">{shown(tasks[1])}</pre>' if tasks else ""
    if len(given) > TITLE_WIDTH:
        whole = f'<pre class="command">{shown(json.dumps(arguments, ensure_ascii=False, indent=1))}</pre>'
    title = f"{short(name, 60)} {short(given, TITLE_WIDTH)}".strip()
    return Shown(title, badge, mood, whole + _output(output, options))


def _tasks(arguments: Any) -> tuple[str, str] | None:
    """A list of tasks, as several vendors' planning tools are given it: how many are done, and each with its mark."""
    lists = [one for one in arguments.values() if isinstance(one, list)] if isinstance(arguments, dict) else []
    tasks = lists[0] if len(lists) == 1 else []
    if not tasks or not all(isinstance(one, dict) and isinstance(one.get("status"), str) for one in tasks):
        return None
    done = sum(one["status"] == "completed" for one in tasks)
    lines = [f"{_TASK_MARKS.get(one['status'], '☐')} {_first(one, _TASK_NAMES) or ''}" for one in tasks]
    return f"{done} of {len(tasks)} done", "\n".join(lines)


def _given(arguments: Any) -> str:
    """What a tool is given: the path first, because it says the most."""
    path = _first(arguments, PATH_NAMES) if isinstance(arguments, dict) else None
    rest = {name: one for name, one in arguments.items() if name not in PATH_NAMES} if path else arguments
    return f"{path} {_flat(rest)}".strip() if path else _flat(rest)


def _flat(arguments: Any) -> str:
    if isinstance(arguments, dict):
        return ", ".join(f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
                         for name, value in arguments.items())  # fmt: skip
    return "" if arguments is None else str(arguments)
