"""Which project a directory belongs to. Reads git's files, and starts git once per repository at most.

A project is known by names, the first of which is its key; sessions are kept under the key:

1. what a person linked it to (`onrecord project link`);
2. its remote, normalised: `github.com/ada/engine`, the same for every clone, folder, worktree and way to fetch it;
3. its first commit, if there is no remote on another machine: `first-commit/3f2a...`;
4. outside a repository, an id in the marker file `.onrecord/project`: `directory/notes-4k7q...`;
5. the path of the main worktree, or of the directory itself, as long as there is nothing better.

The names after the key (`also`) are those that it had before: sessions of an earlier version have the path as their
project, and a repository gets its remote only later. They are found under every name.

A person's link and the first commit are remembered in git's own directory, which no clone copies: a repository from
elsewhere cannot claim to be another project. Every command needs this, so it avoids pathlib: importing that costs more
than the search.
"""

from __future__ import annotations

import os

from onrecord.work.git_files import has_commit, read_text, settings_in

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.session.handle import Session
    from onrecord.views.values import Worktree

GIT_SECONDS = 5
"""How long git may take to find the first commit; after that the path is the project's name."""
NAME_CHARACTERS = 400
"""The longest name of a project, in characters."""
CLONES = 3
"""How many clones of clones on this machine are followed to a remote."""
FIRST_COMMIT, DIRECTORY = "first-commit/", "directory/"
_REMOTES = ("origin", "upstream")
_ANY_CASE = ("github.com/", "gitlab.com/", "bitbucket.org/", "codeberg.org/")
_LINK, _FIRST = "link ", "first-commit "


class Project:
    """A project: its key, the other names it is known by, and its main directory."""

    __slots__ = ("also", "key", "root")

    def __init__(self, key: str, also: tuple[str, ...] = (), root: str = "") -> None:
        self.key = key
        self.also = also
        self.root = root

    @property
    def names(self) -> tuple[str, ...]:
        """Every name, the key first."""
        return (self.key, *self.also)


def project_at(start: str) -> Project:
    """The project that a directory belongs to."""
    root, git = _main(start)
    return _repository(root, git) if git else _known_as(root, [_name(read_text(_marker(root)))])


def git_directory(start: str) -> str:
    """Git's directory of the repository that a directory belongs to, the same for all its worktrees; "" if none."""
    return _main(start)[1]


def _main(start: str) -> tuple[str, str]:
    """The main worktree and git's directory; outside a repository, the directory itself and ""."""
    here = os.path.realpath(start)
    folder = here
    while True:
        git = os.path.join(folder, ".git")
        if os.path.isdir(git):
            return folder, git
        if os.path.isfile(git):
            return _linked(folder, git)
        above = os.path.dirname(folder)
        if above == folder:
            return here, ""
        folder = above


def find_project(start: str) -> str:
    """The key of the project that a directory belongs to."""
    return project_at(start).key


def find_worktree(start: str) -> str:
    """The top of the worktree that contains a directory; outside a worktree, the directory itself."""
    here = os.path.realpath(start)
    folder = here
    while not os.path.exists(os.path.join(folder, ".git")):
        above = os.path.dirname(folder)
        if above == folder:
            return here
        folder = above
    return folder


def worktree_named(root: str) -> Worktree:
    """A worktree as an attempt and a request name it: two are the same if all of this is."""
    return {
        "root": os.path.realpath(root), "host": os.uname().nodename, "git": os.path.exists(os.path.join(root, ".git"))
    }  # fmt: skip


def worktree_for(session: Session, start: str) -> str:
    """The worktree to use for a session: the one around `start` if it is of its project, else one that is on record."""
    wanted = session.head.project
    if wanted in project_at(start).names:
        return find_worktree(start)
    for place in _places(session):
        if os.path.isdir(place) and wanted in project_at(place).names:
            return find_worktree(place)
    return find_worktree(start)


def _places(session: Session) -> Iterator[str]:
    """Where the session's work was, as far as the record says."""
    if os.path.isabs(session.head.project):
        yield session.head.project
    if session.views.lifecycle.place:
        yield session.views.lifecycle.place
    for agent in session.views.roster.agents.values():
        for link in reversed(agent["links"]):
            about = link["first"] | link["last"]
            yield from (str(about[name]) for name in ("worktree", "cwd") if about.get(name))


def project_named(name: str) -> Project:
    """The project of a directory, if there is a directory with this name; if not, the project of this name."""
    return project_at(name) if os.path.isdir(name) else Project(name)


def spelled_out(name: str) -> str:
    """The absolute path, if there is a directory with this name; if not, the name itself."""
    return os.path.abspath(name) if os.path.isdir(name) else name


# Repositories


def _linked(folder: str, pointer: str) -> tuple[str, str]:
    """The main worktree and git's common directory of a worktree whose `.git` is a file that points there."""
    own = os.path.realpath(os.path.join(folder, read_text(pointer).removeprefix("gitdir:").strip()))
    beside = read_text(os.path.join(own, "commondir")).strip()
    if not beside:
        return folder, own  # a submodule, or a worktree without its repository
    common = os.path.realpath(os.path.join(own, beside))
    return (os.path.dirname(common) if os.path.basename(common) == ".git" else common), common


def _repository(root: str, git: str) -> Project:
    remembered = read_text(os.path.join(git, "onrecord-project")).splitlines()
    link = _first_with(_LINK, remembered)
    remote = _remote(root, git)
    first = _first_with(_FIRST, remembered)
    if not remote and not link and not first:
        first = _first_commit(root, git)
    return _known_as(root, [_name(link), remote, FIRST_COMMIT + first if first else ""])


def _known_as(root: str, names: list[str]) -> Project:
    key, *also = dict.fromkeys(name for name in (*names, root) if name)
    return Project(key, tuple(also), root)


def _first_with(start: str, lines: list[str]) -> str:
    return next((line.removeprefix(start).strip() for line in lines if line.startswith(start)), "")


def _remote(root: str, git: str, deep: int = CLONES) -> str:
    """The normalised URL of the remote: origin, upstream, or the only one. A clone of a clone has the first one's."""
    settings = settings_in(read_text(os.path.join(git, "config")))
    urls = {key[1]: url for key, url in settings.items() if (key[0], key[2]) == ("remote", "url")}
    url = next((urls[name] for name in _REMOTES if name in urls), "")
    url = url or (next(iter(urls.values())) if len(urls) == 1 else "")
    if found := normalised(url):
        return found
    there = os.path.join(root, url.removeprefix("file://")) if url else ""
    if not deep or not there or not os.path.isdir(there):
        return ""
    return _remote(
        there, os.path.join(there, ".git") if os.path.isdir(os.path.join(there, ".git")) else there, deep - 1
    )


def normalised(url: str) -> str:
    """A remote without protocol, login, port and ending: the same for every way to fetch it.

    "" for a path on this machine: another clone of it would have another one.
    """
    scheme, found, rest = url.partition("://")
    if not found:
        host, colon, path = url.partition(":")
        if not colon or "/" in host or not host[1:]:
            return ""  # a path, or a drive
        rest = f"{host}/{path}"
    elif scheme.lower() in ("file", ""):
        return ""
    host, _slash, path = rest.partition("/")
    host = host.rpartition("@")[2].lower()
    host = host[: host.index("]") + 1] if host.startswith("[") and "]" in host else host.partition(":")[0]
    host = {"ssh.github.com": "github.com", "altssh.gitlab.com": "gitlab.com"}.get(host, host)
    path = path.partition("?")[0].strip("/").removesuffix(".git").rstrip("/")
    name = f"{host}/{path}"
    return _name((name.lower() if name.startswith(_ANY_CASE) else name) if host and path else "")


def _first_commit(root: str, git: str) -> str:
    """The first commit; "" if there is none. It is remembered: a rewritten history stays the same project."""
    if os.path.exists(os.path.join(git, "shallow")) or not has_commit(git):
        return ""  # the oldest commit of a shallow clone is not the first one
    import subprocess

    command = ["git", f"--git-dir={git}", "rev-list", "--max-parents=0", "HEAD"]
    try:
        answer = subprocess.run(command, cwd=root, capture_output=True, check=False, timeout=GIT_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = answer.stdout.decode(errors="replace").split() if answer.returncode == 0 else []
    if found:
        _remember(git, _FIRST, found[-1])
    return found[-1] if found else ""


# What is remembered


def remember_link(start: str, name: str) -> str:
    """Link the project of a directory to another name; returns the file that says so."""
    root, git = _main(start)
    return _remember(git, _LINK, name) if git else _write(_marker(root), f"{name}\n")


def remember_directory(start: str) -> Project:
    """Give a directory outside of every repository an id that moves with it, unless it has one."""
    known = project_at(start)
    if known.key != known.root or git_directory(start):
        return known
    letters = "".join(one if one.isascii() and one.isalnum() else "-" for one in os.path.basename(known.root))
    name = f"{DIRECTORY}{letters.strip('-')[:40] or 'work'}-{os.urandom(5).hex()}"
    try:
        _write(_marker(known.root), f"{name}\n")
    except OSError:
        return known  # not ours to write to: the path stays its name
    return project_at(start)


def _marker(folder: str) -> str:
    return os.path.join(folder, ".onrecord", "project")


def _remember(git: str, start: str, value: str) -> str:
    path = os.path.join(git, "onrecord-project")
    kept = [line for line in read_text(path).splitlines() if line and not line.startswith(start)]
    try:
        return _write(path, "".join(f"{line}\n" for line in (*kept, start + value)))
    except OSError:
        if start == _LINK:
            raise
        return path  # a repository that is not ours to write to: it is asked again


def _write(path: str, text: str) -> str:
    """Write a file that can be written again at any time. Few processes do, so only they load what it needs."""
    from pathlib import Path

    from onrecord.machine.files import write_file

    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    write_file(Path(path), [text.encode()], durable=False)
    return path


def _name(text: str) -> str:
    """A name on one printable line; "" if it is none."""
    line = text.strip().partition("\n")[0].strip()
    return line if line.isprintable() and len(line) <= NAME_CHARACTERS else ""
