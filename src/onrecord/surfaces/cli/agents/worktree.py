"""`onrecord worktree`: the git worktrees that a session's agents work in, what changed there, and their removal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import AmbiguousName, Conflict, InvalidInput, NotFound
from onrecord.machine import is_gone
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.shared.output import counted
from onrecord.surfaces.cli.shared.place import act, root_of
from onrecord.views.facts import TEXT_LIMIT
from onrecord.views.render import visible
from onrecord.work import worktrees
from onrecord.work.project import find_worktree, project_at

if TYPE_CHECKING:
    from onrecord.session.handle import Session
    from onrecord.surfaces.cli.shared.call import Call


SESSIONS_LISTED = 50
"""Of how many live sessions worktrees are listed."""


class Tree(NamedTuple):
    """A worktree that an agent of the session worked in."""

    agent: str
    path: str
    branch: str
    base: str
    """The revision the agent began with, as far as it is on record."""


def worktree(call: Call) -> int:
    """Do what the first word says."""
    return act(call, {"list": _list, "diff": _diff, "remove": _remove}, "list")


def _session(call: Call, words: list[str]) -> Session:
    if len(words) > 1:
        raise UsageError(f"unexpected argument {words[1]!r}")
    if words:
        call.given.append(("session", words[0]))
    return call.session()


def _trees(call: Call, session: Session) -> list[Tree]:
    """The worktrees on record, besides the main one; the newest last."""
    found: dict[str, Tree] = {}
    for agent, one in session.views.roster.agents.items():
        for link in one["links"]:
            first, last = link["first"], link["last"]
            path = str(last.get("worktree") or first.get("worktree") or "")
            if path and Path(path) != Path(_main(session)) and call.get("agent") in (None, agent):
                base = str(first.get("revision") or "").partition("+")[0]
                known = found.pop(path, Tree(agent, path, "", base))
                found[path] = known._replace(branch=str(last.get("branch") or first.get("branch") or known.branch))
    return list(found.values())


def _main(session: Session) -> str:
    return project_at(str(root_of(session))).root or str(root_of(session))


def _the(call: Call, session: Session) -> Tree:
    """The only worktree that is meant and still there."""
    known = _trees(call, session)
    there = [tree for tree in known if Path(tree.path).is_dir()]
    if not there:
        gone = f"; {known[-1].path} was removed" if known else ""
        raise NotFound(
            f"no agent of {session.name} works in a worktree of its own{gone}",
            hint="start one: `onrecord start claude --worktree fix/login`",
        )
    if len(there) > 1:
        raise AmbiguousName(
            f"{session.name} has {len(there)} worktrees: {', '.join(f'{one.agent} in {one.path}' for one in there)}",
            hint=f"choose one: `--agent {there[0].agent}`",
        )
    return there[0]


def _list(call: Call, words: list[str]) -> int:
    sessions = _sessions(call, words)
    rows = [{"session": one.name, **_about(one, tree)} for one in sessions for tree in _trees(call, one)]
    if call.output.json:
        call.output.envelope("worktrees", rows)
        return 0
    if not rows:
        whose = sessions[0].name if len(sessions) == 1 else "this project"
        call.output.note(f"no agent of {whose} works in a worktree of its own")
        return 0
    told = [[row["session"], row["agent"], row["branch"] or "?", _state(row), row["path"]] for row in rows]
    call.output.table(("#session", "agent", "!branch", "changes", "~directory"), told)
    return 0


def _sessions(call: Call, words: list[str]) -> list[Session]:
    """The session that is meant; if several are live and none is named, all of them."""
    from onrecord.agents.sessions import at_work

    try:
        return [_session(call, words)]
    except AmbiguousName:
        if words or "session" in call:
            raise
        records = call.records(make=False)
        return [records.get(head.session) for head in at_work(records, SESSIONS_LISTED)]


def _about(session: Session, tree: Tree) -> dict[str, Any]:
    about: dict[str, Any] = tree._asdict() | {
        "there": Path(tree.path).is_dir(),
        "files": [],
        "commits": 0,
        "uncommitted": [],
    }
    if about["there"]:
        try:
            about |= worktrees.changes_in(tree.path, _base(session, tree))._asdict()
        except InvalidInput as problem:
            about["problem"] = problem.message
    return about


def _state(row: dict[str, Any]) -> str:
    if not row["there"]:
        return "removed"
    if row.get("problem"):
        return "?"
    unsaved = f", {len(row['uncommitted'])} not committed" if row["uncommitted"] else ""
    return f"{counted(len(row['files']), 'file')}, {counted(row['commits'], 'commit')}{unsaved}"


def _base(session: Session, tree: Tree) -> str:
    return worktrees.base_of(tree.path, _main(session), tree.base)


def _diff(call: Call, words: list[str]) -> int:
    session = _session(call, words)
    tree = _the(call, session)
    about = _about(session, tree)
    if call.output.json:
        data = about | ({} if "files" in call else {"diff": worktrees.diff_of(tree.path, _base(session, tree))})
        call.output.envelope("worktree_diff", data)
        return 0
    if "files" in call:
        for name in about["files"]:
            call.output.line(visible(name))
        return 0
    for line in worktrees.diff_of(tree.path, _base(session, tree)).splitlines():
        call.output.line(visible(line))
    call.output.note(f"{tree.path} ({tree.branch}): {_state(about)} since {_base(session, tree)[:12]}")
    return 0


def _remove(call: Call, words: list[str]) -> int:
    """Remove a worktree; its branch stays. Not while its agent works there, and what is not committed needs --force."""
    session = _session(call, words)
    tree = _the(call, session)
    busy = next((one for one in session.log.leases() if one.lane == tree.agent and not is_gone(one.holder)), None)
    if busy is not None:
        raise Conflict(f"{tree.agent} is working in {tree.path}", hint="end it first")
    if find_worktree(".") == find_worktree(tree.path):
        raise Conflict(f"this is the worktree {tree.path} itself", hint=f"run it in `{_main(session)}`")
    if "force" in call and (unsaved := worktrees.changes_in(tree.path, "HEAD").uncommitted):
        call.confirm(f"Remove {tree.path} with {counted(len(unsaved), 'file')} that are not committed?")
    worktrees.remove_worktree(_main(session), tree.path, force="force" in call)
    session.log.record("worklog.written", {"text": f"removed the worktree {tree.path} of {tree.branch}"[:TEXT_LIMIT]})
    data = {"state": "removed", "path": tree.path, "branch": tree.branch, "agent": tree.agent}
    return call.output.done("worktree", data, f"removed {tree.path}; its branch {tree.branch} is still there")
