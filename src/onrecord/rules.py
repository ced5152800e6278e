"""The gate: before a tool runs, rules judge the request and answer allow, ask or deny, with the events behind it.

Rules are code. They read structured facts (paths, argument lists, states), never words inside a text. Every refusal
names the one command that clears it. onrecord's own commands are never refused, so an agent can always clear a refusal.
A refusal that repeats becomes a question to a person.
"""

from __future__ import annotations

import posixpath

from onrecord.shell import CERTAIN, LIKELY, UNSEEN, is_below
from onrecord.shell.splitting import OPERATORS, join, quote, split
from onrecord.views.attempts import FAILED, LOST, RUNNING, in_worktree, status_of
from onrecord.views.gates import ground
from onrecord.views.render import one_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from onrecord.views.present import Present
    from onrecord.views.spend import Exhausted, Spend
    from onrecord.views.values import Anchor, Attempt, Budget, Json, Process, Worktree

    Gone = Callable[[Process], bool]

ALLOW, ASK, DENY = "allow", "ask", "deny"
EDIT, RUN, READ, OTHER = "edit", "run", "read", "other"
ACTS = (EDIT, RUN, READ, OTHER)
CLOSED, PAUSED, BUDGET, ATTEMPT, PHASE = (
    "session_closed", "session_paused", "budget_spent", "unresolved_attempt", "phase_not_entered",
)  # fmt: skip
RULES = (CLOSED, PAUSED, ATTEMPT, BUDGET, PHASE)
REFUSALS_LIMIT = 8
"""After this many refusals on the same ground, the gate asks a person instead."""
ADVICE_WIDTH = 240
"""The longest line of advice, in characters."""
COMMAND_WIDTH = 80
"""The longest part of an attempt's command in a refusal, in characters."""
OWN_FILES = (".onrecord/", "STATE.md")
"""Files that make the record readable; editing them is always allowed. A name that ends in a slash is a directory."""
BESIDE = frozenset({"cd", "true", "echo", "printf", "cat", "head", "tail", "grep", "jq", "wc", "sort", "export"})
"""Programs that may share a command line with onrecord's own commands."""

OWN_TOOLS = frozenset({"resume", "record", "attempt", "gate", "search", "read"})
"""The tools of our MCP server; vendors put the server's name before them, each in its own way."""
OWN_SERVERS = frozenset({"onrecord", "mcp__onrecord", "mcp_onrecord", "mcp__plugin_onrecord_onrecord"})

TOOLS = {
    EDIT: ("edit", "write", "multiedit", "notebookedit", "apply_patch", "str_replace", "create", "insert", "replace",
           "write_file", "edit_file", "str_replace_editor", "str_replace_based_edit_tool"),
    RUN: ("bash", "shell", "run", "exec", "run_shell_command", "local_shell", "terminal", "exec_command"),
    READ: ("read", "grep", "glob", "ls", "view", "read_file", "list_directory", "search_file_content", "webfetch",
           "websearch", "todowrite"),
}  # fmt: skip
"""What agents' tools do, by lower-case name; an unknown tool is judged by its arguments."""


class ToolRequest:
    """What an agent is about to do, in a form that is the same for all vendors."""

    __slots__ = ("act", "agent", "call", "commands", "line", "lines", "paths", "tool", "worktree")

    def __init__(
        self, agent: str, act: str, *, paths: Sequence[str] = (), commands: Sequence[Sequence[str]] = (),
        lines: tuple[int, int] | None = None, tool: str = "", call: str = "", line: str = "",
        worktree: Worktree | None = None,
    ) -> None:  # fmt: skip
        self.agent = agent
        self.act = act
        self.paths = tuple(paths)
        """Relative to the project's root."""
        self.commands = tuple(tuple(command) for command in commands)
        """The simple commands of a command line, each as its argument list."""
        self.line = line
        """The command line itself, with its quotes."""
        self.worktree = worktree
        """Where the agent works; None if that is not known: then attempts of every worktree count."""
        self.lines = lines
        """First and last line of an edit, if known."""
        self.tool = tool
        self.call = call
        """The vendor's id of the call."""


class Verdict:
    """The gate's answer."""

    __slots__ = ("advice", "advised", "clear", "decision", "ground", "positions", "reason", "rule")

    def __init__(
        self, decision: str, rule: str = "", reason: str = "", clear: str = "", *, positions: Sequence[int] = (),
        ground: str = "", advice: str = "", advised: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self.decision = decision
        self.rule = rule
        self.reason = reason
        self.clear = clear
        """The one command that clears a refusal."""
        self.positions = tuple(positions)
        """The positions of the events behind the refusal."""
        self.ground = ground
        """The refusal's key: equal refusals have equal keys."""
        self.advice = advice
        """One line of advice for this moment."""
        self.advised = tuple(advised)
        """The key of the advice, so that it is given once."""

    @property
    def plain(self) -> bool:
        """Whether this allows the call without advice."""
        return self.decision == ALLOW and not self.advice

    def as_data(self) -> dict[str, Json]:
        """The verdict as JSON values."""
        return {
            "decision": self.decision, "rule": self.rule, "reason": self.reason, "clear": self.clear,
            "positions": list(self.positions), "ground": self.ground, "advice": self.advice,
            "advised": list(self.advised),
        }  # fmt: skip

    @classmethod
    def from_data(cls, data: dict[str, Json]) -> Verdict:
        """A verdict that is on record."""
        return cls(**{name: data[name] for name in cls.__slots__ if name in data})


def act_of(tool: str, *, has_path: bool, has_command: bool) -> str:
    """What a tool is about to do: by its name, or for an unknown tool by its arguments."""
    name = tool.casefold()
    known = next((act for act, names in TOOLS.items() if name in names), None)
    if known:
        return known
    return RUN if has_command else EDIT if has_path else OTHER


def command_of(text: str) -> tuple[str, ...]:
    """A command as an argument list; a text that is not a shell command remains one argument."""
    try:
        return tuple(split(text))
    except ValueError:
        return (text,)


def commands_of(text: str) -> list[tuple[str, ...]]:
    """The simple commands of a command line. One that redirects to a file ends with the operator and the file."""
    commands: list[list[str]] = [[]]
    try:
        for word in split(text.replace("\n", " ; "), OPERATORS):
            if word and all(letter in ";&|()" for letter in word):
                commands.append([])
            else:
                commands[-1].append(word)
    except ValueError:
        return [(text,)]
    return [tuple(command) for command in commands if command]


def signature_of_command(command: Sequence[str]) -> str:
    """What makes two commands the same: their arguments."""
    return join(command)


def decide(request: ToolRequest, present: Present, now: int, gone: Gone) -> Verdict:
    """The verdict on a request. Pure: `gone` says whether another process has ended."""
    if request.act not in (EDIT, RUN) or is_ours(request):
        return Verdict(ALLOW)
    for verdict in refusals(request, present, now, gone):
        if present.gates.refusals.get(verdict.ground, 0) >= REFUSALS_LIMIT:
            verdict.decision = ASK
            verdict.reason += f" (refused {REFUSALS_LIMIT} times: a person decides)"
        return verdict
    return _advise(request, present, now)


def refusals(request: ToolRequest, present: Present, now: int, gone: Gone) -> Iterator[Verdict]:
    """Every refusal that applies and is not overridden, the most basic first."""
    for rule in _RULES:
        for verdict in rule(request, present, now, gone):
            verdict.ground = ground(verdict.rule, request.agent, verdict.positions)
            if verdict.ground not in present.gates.overridden:
                yield verdict


def is_ours(request: ToolRequest) -> bool:
    """Whether a request only runs onrecord's own commands or tools, or writes its own files."""
    if is_own_tool(request.tool):
        return True
    if request.act == EDIT:
        return bool(request.paths) and all(_is_own_file(path) for path in request.paths)
    programs = [_program(command) for command in request.commands]
    written = any(_writes_a_file(command) for command in request.commands)
    return "onrecord" in programs and not written and all(one == "onrecord" or one in BESIDE for one in programs)


def is_own_tool(tool: str) -> bool:
    """Whether a tool is one of our MCP server, by the name that a vendor gives it: it records itself."""
    for separator in ("__", "_", "-"):
        server, _found, word = tool.rpartition(separator)
        if word in OWN_TOOLS and server in OWN_SERVERS:
            return True
    return False


def _is_own_file(path: str) -> bool:
    if ".." in path.split("/"):
        return False
    return any(path.startswith(own) if own.endswith("/") else path == own for own in OWN_FILES)


def _program(command: tuple[str, ...]) -> str:
    """The program of a simple command, without variable assignments before it and without its directory."""
    words = list(command)
    while words and "=" in words[0] and words[0].partition("=")[0].isidentifier():
        del words[0]
    name = words[0].rpartition("/")[2] if words else ""
    return "onrecord" if name.startswith("python") and words[1:3] == ["-m", "onrecord"] else name


def _writes_a_file(command: tuple[str, ...]) -> bool:
    for index, word in enumerate(command):
        if word and all(letter in "<>&" for letter in word):
            target = command[index + 1 : index + 2]
            if ">" in word and target not in ((), ("/dev/null",), ("1",), ("2",)):
                return True
            if word.startswith("<<"):
                return True
    return False


def _closed(_request: ToolRequest, present: Present, _now: int, _gone: Gone) -> Iterator[Verdict]:
    # An erased session refuses nothing.
    if present.status in ("closed", "archived"):
        step, name = present.stopped(), quote(present.name)
        reason = f"session {present.name} is {present.status}"
        yield Verdict(DENY, CLOSED, reason, f"onrecord resume {name} --reopen", positions=(step["position"],))


def _paused(_request: ToolRequest, present: Present, _now: int, _gone: Gone) -> Iterator[Verdict]:
    if present.status == "paused":
        step, name = present.stopped(), quote(present.name)
        why = f": {one_line(step['reason'], ADVICE_WIDTH)}" if step["reason"] else ""
        reason = f"session {present.name} is paused{why}"
        yield Verdict(DENY, PAUSED, reason, f"onrecord resume {name}", positions=(step["position"],))


def edit_of(request: ToolRequest) -> str:
    """Whether a request edits files of its worktree: certain, likely or not seen."""
    root = request.worktree["root"] if request.worktree else ""
    if request.act == EDIT:
        outside = root and request.paths and not any(is_below(path, root) for path in _whole_paths(request, root))
        return UNSEEN if outside else CERTAIN
    return _edit_in_line(request, root) if request.act == RUN else UNSEEN


def _edit_in_line(request: ToolRequest, root: str, home: str = "") -> str:
    from onrecord.shell.edits import edit_in

    line = request.line or "\n".join(_as_line(command) for command in request.commands)
    return edit_in(line, root, _is_own_file, home)


def _whole_paths(request: ToolRequest, root: str) -> list[str]:
    return [posixpath.normpath(posixpath.join(root, path)) for path in request.paths]


def _as_line(command: Sequence[str]) -> str:
    """A simple command as text; its redirections stay what they are."""
    return " ".join(word if word and all(one in "<>&" for one in word) else quote(word) for word in command)


def _unresolved(request: ToolRequest, present: Present, _now: int, gone: Gone) -> Iterator[Verdict]:
    """No edit in a worktree while an attempt of any agent has no outcome there; a likely edit is a question."""
    waiting = present.attempts.unresolved()
    edit = edit_of(request) if waiting else UNSEEN
    found = []
    for attempt in waiting:
        status = status_of(attempt, gone)
        if _reaches(request, attempt):
            decision = DENY
        elif in_worktree(attempt, request.worktree):
            decision = _against(request, attempt, status, edit)
        else:
            decision = ALLOW
        if decision != ALLOW:
            reason, clear = _told(request, present, attempt, status, decision)
            found.append(Verdict(decision, ATTEMPT, reason, clear, positions=(attempt["position"],)))
    yield from sorted(found, key=lambda verdict: verdict.decision != DENY)


def _reaches(request: ToolRequest, attempt: Attempt) -> bool:
    """Whether a request from another worktree certainly edits files of the one in which an attempt runs."""
    there, here = attempt.get("worktree"), request.worktree
    if not there or not here or there["host"] != here["host"] or there["root"] == here["root"]:
        return False
    root, home = there["root"], here["root"]
    if request.act == EDIT:
        return any(is_below(path, root, home) for path in _whole_paths(request, home))
    return _edit_in_line(request, root, home) == CERTAIN


def _against(request: ToolRequest, attempt: Attempt, status: str, edit: str) -> str:
    """The decision on a request while an attempt has no outcome."""
    if edit == CERTAIN or request.act == EDIT:
        return DENY if edit else ALLOW
    if _is_watched(attempt, status):
        # A command that is not named may be the same one.
        same = not request.commands or attempt["signature"] in map(signature_of_command, request.commands)
        return DENY if same else ASK if edit == LIKELY else ALLOW
    # Nothing else runs until its outcome is recorded: after a loss no command of any agent, else none of its own agent.
    blocks = status == LOST or attempt["by"] == request.agent
    return DENY if blocks else ASK if edit == LIKELY else ALLOW


def _is_watched(attempt: Attempt, status: str) -> bool:
    return status == RUNNING and bool(attempt["process"] or attempt["keeper"])


def _told(request: ToolRequest, present: Present, attempt: Attempt, status: str, decision: str) -> tuple[str, str]:
    number, name = attempt["number"], quote(present.name)
    whose = "" if attempt["by"] == request.agent else f" of {one_line(attempt['by'], COMMAND_WIDTH)}"
    about = f"attempt {number}{whose} ({one_line(attempt['command'], COMMAND_WIDTH)})"
    if decision == ASK:
        reason = f"{about} has no outcome yet, and this command may change files of its worktree: a person decides"
        return reason, f'onrecord attempt abandon {number} --session {name} --reason "..."'
    if _is_watched(attempt, status):
        reason = f"{about} is running and this would disturb it; wait until it ends, or abandon it"
        return reason, f'onrecord attempt abandon {number} --session {name} --reason "..."'
    lost = "is lost: its process is gone" if status == LOST else "is unresolved"
    clear = f'onrecord attempt fail {number} --session {name} --error "..." --fix "..."'
    return f"{about} {lost}; say how it ended first", clear


def _spent(_request: ToolRequest, present: Present, now: int, _gone: Gone) -> Iterator[Verdict]:
    out = present.spend.exhausted(now)
    if out is not None:
        clear = raising(present.name, present.spend, now)
        yield Verdict(DENY, BUDGET, spent(out), clear, positions=(present.spend.budget_position,))


def raising(name: str, spend: Spend, now: int) -> str:
    """The command that raises a budget: a limit that is used up gets as much again.

    `open --budget` replaces the whole budget, so the other limits are named too.
    """
    limits = " ".join(f"--budget {limit}={amount}" for limit, amount in enough(spend.budget, spend.spent(now)).items())
    return f"onrecord open {quote(name)} {limits}"


def enough(budget: Budget, used: Mapping[str, float], stopped: str = "") -> dict[str, str]:
    """The budget in which a limit that is used up, or that stopped the work, has as much again."""
    wanted = {
        limit: used.get(limit, allowed) + allowed if used.get(limit, 0) >= allowed or limit == stopped else allowed
        for limit, allowed in budget.items()
    }
    return {limit: _amount(amount) for limit, amount in wanted.items()}


def spent(out: Exhausted) -> str:
    """Which limit is used up, in one line."""
    return f"the budget is spent: {_amount(out.used)} of {_amount(out.allowed)} {out.limit}"


def _phase(request: ToolRequest, present: Present, _now: int, _gone: Gone) -> Iterator[Verdict]:
    """Only edits wait for the phase: an agent must be able to look around before it enters one."""
    phases = present.phases
    current = phases.current()
    if current is not None and current not in phases.entered and edit_of(request) == CERTAIN:
        done = [phases.finished[name]["position"] for name in phases.names if name in phases.finished]
        clear = f"onrecord phase enter {quote(current)} --session {quote(present.name)}"
        yield Verdict(DENY, PHASE, f"phase {current} has not been entered", clear, positions=done[-1:])


_RULES = (_closed, _paused, _unresolved, _spent, _phase)


def _amount(value: float) -> str:
    return f"{value:.9f}".rstrip("0").rstrip(".")


def _advise(request: ToolRequest, present: Present, now: int) -> Verdict:
    """The first advice that this agent has not had yet."""
    for matches in (_scarce(request, present, now), _matches(request, present)):
        for key, line in matches:
            if key not in present.gates.advised:
                return Verdict(ALLOW, advice=one_line(line, ADVICE_WIDTH), advised=(key,))
    return Verdict(ALLOW)


def _scarce(request: ToolRequest, present: Present, now: int) -> Iterator[tuple[str, str]]:
    """That most of the budget is used: said once for each limit, and again when the budget is set again."""
    near = present.spend.nearly(now)
    if near is not None:
        yield f"{request.agent}/budget/{near.limit}/{present.spend.budget_position}", scarcity(near)


def scarcity(near: Exhausted) -> str:
    """How much of a limit is used, in one line."""
    used, allowed = _amount(near.used), _amount(near.allowed)
    return f"{int(100 * near.used / near.allowed)} % of the budget is used: {used} of {allowed} {near.limit}"


def _matches(request: ToolRequest, present: Present) -> Iterator[tuple[str, str]]:
    attempts, ran = present.attempts, request.act == RUN and present.attempts.count
    signatures = {signature_of_command(command) for command in request.commands} if ran else set()
    same = [one for one in attempts.of_commands(signatures) if one["status"] != RUNNING] if signatures else []
    if same and same[-1]["status"] == FAILED:
        last = same[-1]
        proof = last.get("evidence") or f"attempt {last['number']}"
        fix = f"; fix: {last['fix']}" if last.get("fix") else ""
        line = f"[{proof}] attempt {last['number']} of this command failed: {last.get('error') or 'no error on record'}"
        yield f"{request.agent}/attempt/{last['number']}", line + fix
    proofs = {attempt.get("evidence") for attempt in same} - {None}
    for finding in present.findings.labelled("rejected"):
        if request.act == EDIT:
            hit = any(_touches(request, anchor) for anchor in finding["anchors"])
        else:
            hit = not proofs.isdisjoint(finding["evidence"])
        if hit:
            line = f"[{', '.join(finding['evidence'][-2:])}] {finding['id']} was rejected: {finding['claim']}"
            yield f"{request.agent}/finding/{finding['id']}/{finding['position']}", line


def _touches(request: ToolRequest, anchor: Anchor) -> bool:
    if anchor["path"] not in request.paths:
        return False
    lines = anchor.get("lines")
    if not lines or not request.lines:
        return True
    return bool(lines[0] <= request.lines[1] and request.lines[0] <= lines[1])
