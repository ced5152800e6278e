"""The team file: who is in a team, what each one runs and where. TOML, with every key and value checked.

    [team]
    name = "invite-403"

    [variables]
    ticket = "INV-403"

    [[agent]]
    id = "lead"
    command = "claude --model opus"
    prompt_file = "prompts/lead.md"

    [[group]]
    id = "worker"
    count = 3
    command = "codex"
    prompt = "You are {{ agent }}. Take the next part of {{ ticket }}."
    worktree = true

A team is plain data once it is read: it is on record, so that a team can be resumed without its file.
"""

from __future__ import annotations

import re
import shlex
import tomllib
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from onrecord.errors import InvalidInput
from onrecord.log.names import check_name
from onrecord.machine.files import refuse_special

TEAM_BYTES = 256 * 1024
"""How much of a team file is read."""
PROMPT_BYTES = 64 * 1024
"""The longest prompt of an agent, in bytes."""
MEMBERS_LIMIT = 64
"""The most agents of a team."""
RESTARTS = ("resume", "fresh", "never")
LAYOUTS = ("windows", "tiled", "even-horizontal", "even-vertical", "main-vertical")

CREW = "crew"
"""The agent a supervisor joins a session as; no member of a team has this name."""

_VARIABLE = re.compile(r"\{\{\s*([A-Za-z_][A-Za-z0-9_]*)\s*\}\}")
_OWN_VARIABLES = ("agent", "session", "project", "team", "directory")
_COMMON: dict[str, type | tuple[type, ...]] = {
    "id": str, "command": str, "prompt": str, "prompt_file": str, "directory": str, "worktree": bool,
    "environment": dict, "restart": str, "headless": bool,
}  # fmt: skip
_TABLES: dict[str, dict[str, type | tuple[type, ...]]] = {
    "team": {"name": str, "runtime": str},
    "agent": _COMMON,
    "group": _COMMON | {"count": int, "layout": str},
}


class Member(NamedTuple):
    """One agent of a team."""

    id: str
    command: list[str]
    """The vendor's program and the user's own arguments."""
    prompt: str
    """Its first prompt, variables not yet filled in; "" for an agent that waits for a person."""
    directory: str
    """Where it works, relative to the team file's directory unless absolute."""
    worktree: bool
    """Whether it gets a git worktree of its own."""
    environment: dict[str, str]
    restart: str
    headless: bool
    group: str = ""


class Group(NamedTuple):
    """Agents that are alike: `worker-1`, `worker-2`; also a group of one has a `worker-1`, so that it can grow."""

    id: str
    size: int
    layout: str
    like: Member


class Team(NamedTuple):
    """A whole team."""

    name: str
    runtime: str
    root: str
    """The directory of the team file: relative paths start there."""
    agents: list[Member]
    groups: list[Group]
    variables: dict[str, str]

    def members(self) -> list[Member]:
        """Every agent, groups written out."""
        return [*self.agents, *(member for group in self.groups for member in members_of(group))]

    def scaled(self, group: str, size: int) -> Team:
        """The same team with a group of another size."""
        if group not in {one.id for one in self.groups}:
            known = ", ".join(one.id for one in self.groups) or "it has none"
            raise InvalidInput(f"the team has no group {group!r}", hint=f"its groups are {known}")
        groups = [one._replace(size=size) if one.id == group else one for one in self.groups]
        return _checked(self._replace(groups=groups))

    def as_data(self) -> dict[str, Any]:
        """The team as JSON values, for the record."""
        return self._asdict() | {
            "agents": [member._asdict() for member in self.agents],
            "groups": [group._asdict() | {"like": group.like._asdict()} for group in self.groups],
        }

    @classmethod
    def from_data(cls, data: dict[str, Any]) -> Team:
        """A team on record; a record may come from another machine, so it is checked like a file."""
        try:
            groups = [Group(**(one | {"like": _typed(Member(**one["like"]))})) for one in data["groups"]]
            agents = [_typed(Member(**one)) for one in data["agents"]]
            return _checked(_typed(cls(**(data | {"agents": agents, "groups": [_typed(one) for one in groups]}))))
        except (TypeError, KeyError, AttributeError) as problem:
            raise InvalidInput(
                f"the team on record cannot be read: {problem}", hint="start it again from its team file"
            ) from None


_FIELDS: dict[str, type] = {
    "id": str, "name": str, "runtime": str, "root": str, "prompt": str, "directory": str, "restart": str, "group": str,
    "layout": str, "size": int, "worktree": bool, "headless": bool,
    "command": list, "environment": dict, "variables": dict,
}  # fmt: skip
_CHOICES = {"restart": RESTARTS, "layout": LAYOUTS}
_Row = TypeVar("_Row", Member, Group, Team)


def _typed(one: _Row) -> _Row:
    """The same, if every field is what it should be."""
    for name, value in one._asdict().items():
        texts = value.values() if isinstance(value, dict) else value if name == "command" else ()
        wrong = name in _FIELDS and type(value) is not _FIELDS[name]
        wrong = wrong or value not in _CHOICES.get(name, (value,))
        if wrong or not all(isinstance(text, str) for text in texts) or (name == "command" and not value):
            raise InvalidInput(f"the team on record cannot be read: {name} is {value!r:.80}")
    return one


def members_of(group: Group) -> list[Member]:
    """The agents of a group, numbered from 1 whatever its size."""
    return [group.like._replace(id=f"{group.id}-{n}", group=group.id) for n in range(1, group.size + 1)]


def read_team(path: Path) -> Team:
    """The team that a file describes, or one clear error that names the table."""
    try:
        refuse_special(path)
        with path.open("rb") as file:
            text = file.read(TEAM_BYTES + 1)
        if len(text) > TEAM_BYTES:
            raise InvalidInput(f"{path} has over {TEAM_BYTES:,} bytes; that is not a team file")
        found = tomllib.loads(text.decode())
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}", hint="name a team file in TOML") from None
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(f"{path} cannot be read: {problem}", hint="it must be a TOML file") from None
    root = path.resolve().parent
    _refuse_unknown(found, (*_TABLES, "variables"), str(path))
    head = _table(found.get("team", {}), "team", f"{path}: [team]")
    variables = found.get("variables", {})
    if not isinstance(variables, dict) or not all(isinstance(value, str) for value in variables.values()):
        raise InvalidInput(f"{path}: the values in [variables] must be text", hint='write them like ticket = "INV-403"')
    agents = [_member(one, root, f"{path}: [[agent]]", variables) for one in _tables(found, "agent", path)]
    groups = [_group(one, root, f"{path}: [[group]]", variables) for one in _tables(found, "group", path)]
    name = check_name(head.get("name") or path.stem, "team")
    return _checked(Team(name, head.get("runtime", "runtime"), str(root), agents, groups, dict(variables)))


def filled(text: str, values: dict[str, str]) -> str:
    """A prompt with its variables filled in. Variables inside a value are not filled in."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in values:
            raise InvalidInput(f"the prompt uses a variable {name!r} that is not set", hint="set it in [variables]")
        return values[name]

    return _VARIABLE.sub(value, text)


def _tables(found: dict[str, Any], name: str, path: Path) -> list[Any]:
    tables = found.get(name, [])
    if not isinstance(tables, list):
        raise InvalidInput(f"{path}: [{name}] needs double brackets: [[{name}]]")
    return tables


def _table(table: Any, kind: str, where: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise InvalidInput(f"{where} must be a table")
    fields = _TABLES[kind]
    _refuse_unknown(table, fields, where)
    for name, value in table.items():
        if not isinstance(value, fields[name]) or (fields[name] is int and isinstance(value, bool)):
            raise InvalidInput(f"{where}: {name} has the wrong type", hint=f"it is {value!r:.80}")
    return table


def _refuse_unknown(table: dict[str, Any], known: Any, where: str) -> None:
    for name in table:
        if name not in known:
            near = get_close_matches(name, list(known), n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise InvalidInput(f"{where}: {name!r} is unknown", hint=hint)


def _member(table: Any, root: Path, where: str, variables: dict[str, str], kind: str = "agent") -> Member:
    table = _table(table, kind, where)
    if "id" not in table or "command" not in table:
        raise InvalidInput(f"{where} needs an id and a command", hint='write them like id = "lead", command = "claude"')
    id_ = check_name(table["id"], "agent")
    where = f"{where} {id_}"
    try:
        command = shlex.split(table["command"])
    except ValueError as problem:
        raise InvalidInput(f"{where}: the command cannot be read: {problem}") from None
    if not command:
        raise InvalidInput(f"{where}: the command is empty")
    environment = table.get("environment", {})
    for name, value in environment.items():
        if not isinstance(value, str) or not name or "=" in name or "\0" in name + value:
            raise InvalidInput(f"{where}: environment must map names to text; {name!r} does not")
    restart = table.get("restart", "resume")
    if restart not in RESTARTS:
        raise InvalidInput(f"{where}: restart must be one of {', '.join(RESTARTS)}, not {restart!r}")
    if table.get("worktree") and "directory" in table:
        raise InvalidInput(f"{where}: set a directory or a worktree, not both")
    prompt = _prompt(table, root, where)
    filled(
        prompt, dict.fromkeys(_OWN_VARIABLES, "") | variables
    )  # a missing variable is an error before anything starts
    return Member(
        id_, command, prompt, table.get("directory", "."), bool(table.get("worktree")), environment, restart,
        bool(table.get("headless")),
    )  # fmt: skip


def _group(table: Any, root: Path, where: str, variables: dict[str, str]) -> Group:
    like = _member(table, root, where, variables, kind="group")
    layout = table.get("layout", "windows")
    if layout not in LAYOUTS:
        raise InvalidInput(f"{where} {like.id}: layout must be one of {', '.join(LAYOUTS)}, not {layout!r}")
    return Group(like.id, table.get("count", 1), layout, like)


def _prompt(table: dict[str, Any], root: Path, where: str) -> str:
    if "prompt" in table and "prompt_file" in table:
        raise InvalidInput(f"{where}: set prompt or prompt_file, not both")
    text = table.get("prompt", "")
    if "prompt_file" in table:
        place = root / table["prompt_file"]
        try:
            with place.open("rb") as file:
                text = file.read(PROMPT_BYTES + 1).decode()
        except (OSError, UnicodeDecodeError) as problem:
            raise InvalidInput(f"{where}: {place} cannot be read as text: {problem}") from None
    if len(text.encode()) > PROMPT_BYTES:
        raise InvalidInput(f"{where}: the prompt has over {PROMPT_BYTES:,} bytes")
    return str(text)


def _checked(team: Team) -> Team:
    for group in team.groups:
        if not 0 <= group.size <= MEMBERS_LIMIT:
            raise InvalidInput(f"group {group.id}: count must be 0 to {MEMBERS_LIMIT}, not {group.size}")
    ids = [member.id for member in team.members()]
    if not team.agents and not team.groups:
        raise InvalidInput("the team has no agents", hint="add an [[agent]] or a [[group]]")
    if len(ids) > MEMBERS_LIMIT:
        raise InvalidInput(f"the team has {len(ids)} agents; the limit is {MEMBERS_LIMIT}")
    twice = next((one for one in ids if ids.count(one) > 1), None)
    if twice is not None:
        raise InvalidInput(
            f"two agents of the team are named {twice!r}",
            hint="agents of a group are named worker-1, worker-2 and so on",
        )
    for one in ids:
        check_name(one, "agent")
        if one == CREW:
            raise InvalidInput(f"the name {CREW!r} is reserved for the team's supervisor", hint="choose another id")
    return team
