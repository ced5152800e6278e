"""connect: from a URL and settings to the sessions of a store. The only module that names concrete stores.

Every command passes through here, so pathlib, urllib and typing are left to those who need them.
"""

from __future__ import annotations

import os
import stat

from onrecord.environment import (
    AUTO_VARIABLE,
    CONFIG_VARIABLE,
    FOLLOW_VARIABLE,
    PROJECT_VARIABLE,
    STORE_VARIABLE,
    TENANT_VARIABLE,
)
from onrecord.errors import InvalidInput, NotFound, StoreCorrupt, StoreError
from onrecord.work.project import Project, project_at, project_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from types import ModuleType
    from typing import Any

    from onrecord.log.store import Store
    from onrecord.machine.session_keys import SessionKeys
    from onrecord.session.funnel import Rules
    from onrecord.session.handle import Session
    from onrecord.session.retention import Policy
    from onrecord.session.session_store import SessionStore
    from onrecord.stores.sqlite.glance import Linked
    from onrecord.views.present import Present
    from onrecord.views.values import Profile
    from onrecord.workspace.files import Paths

PROFILE_BYTES = 256 * 1024
"""How much of a profile's file is read."""
_SQLITE_OPTIONS = ("durability",)
_POSTGRES_SCHEMES = ("postgresql", "postgres")
_SETTINGS = {
    "store": str, "project": str, "retention": dict, "stealth": bool, "auto_register": bool, "auto_register_in": list,
    "auto_register_not_in": list, "notify": dict, "secrets": dict, "encryption": dict, "bundles": dict,
    "follow": bool, "session_keys": dict,
}  # fmt: skip


def connect(url: str | None = None, *, project: str | None = None) -> SessionStore:
    """The sessions of a store: the default one, a path, `sqlite:///relative/x.db`, `postgresql://host/db`, `memory:`.

    Without a URL, it is ONRECORD_STORE, then `store` in the configuration, then one file in the user's data
    directory. The project is the given one, ONRECORD_PROJECT, `project` in the configuration, or that of the working
    directory. An absolute path means the project of that directory: its repository, in whichever clone or worktree.
    """
    return _sessions(open_store(store_url(url)), project)


def connect_tenant(tenant: str, url: str, *, project: str | None = None) -> SessionStore:
    """The sessions of one tenant of a store in PostgreSQL whose URL names none."""
    from onrecord.session.funnel import configure

    store = _postgres().PostgresStore(url, tenant=tenant, session_keys=session_keys)
    return _sessions(configure(store, secret_rules), project)


def _sessions(store: Store, project: str | None) -> SessionStore:
    from onrecord.agents.price_list import with_prices
    from onrecord.session.session_store import SessionStore

    here = project_here() if project is None else project_named(project) if os.path.isabs(project) else Project(project)
    return SessionStore(with_prices(store), project=here.key, also=here.also, place=here.root)


def project_here() -> Project:
    """The project if none is given: the one that is named in the environment or the settings, or this directory's."""
    named = os.environ.get(PROJECT_VARIABLE) or settings().get("project")
    return project_named(named) if named else project_at(os.curdir)


def store_url(url: str | None = None) -> str:
    """The URL or path of the chosen store."""
    return url or os.environ.get(STORE_VARIABLE) or settings().get("store") or default_path()


def store_file(url: str | None = None) -> str | None:
    """The file of the chosen store, whether or not it exists; None if the store is not a file."""
    place = store_url(url)
    scheme = place.partition(":")[0] if "://" in place else ""
    if place == "memory:" or scheme not in ("", "sqlite"):
        return None
    return os.path.expanduser(_sqlite_place(place)[0] if scheme else place)


def open_store(url: str) -> Store:
    """The store a URL names; what goes into it passes the user's rules for secrets."""
    from onrecord.session.funnel import configure

    return configure(_bare_store(url), secret_rules)


def _bare_store(url: str) -> Store:
    if url == "memory:":
        from onrecord.stores.memory import MemoryStore

        return MemoryStore()
    scheme = url.partition(":")[0] if "://" in url else ""
    if scheme in ("", "sqlite"):
        from onrecord.stores.sqlite import SQLiteStore

        path, options = _sqlite_place(url) if scheme else (url, {})
        return SQLiteStore(os.path.expanduser(path), key=store_key, session_keys=session_keys, **options)
    if scheme in _POSTGRES_SCHEMES:
        tenant = os.environ.get(TENANT_VARIABLE)
        store: Store = _postgres().PostgresStore(url, tenant=tenant, session_keys=session_keys)
        return store
    raise InvalidInput(
        f"unknown kind of store: {scheme}://",
        hint="use a path, sqlite:///path/x.db, postgresql://user@host/database, or memory:",
    )


def _postgres() -> ModuleType:
    """The store in PostgreSQL and what belongs to it; its driver is an extra."""
    try:
        import onrecord.stores.postgres.store as found
    except ImportError as problem:
        if (problem.name or "").partition(".")[0] != "psycopg":
            raise
        raise StoreError(
            "a store in PostgreSQL needs a driver that is not installed", hint='pip install "onrecord[postgres]"'
        ) from None
    return found


def shown_url(url: str) -> str:
    """A URL as it may be shown: without a password."""
    if url.partition("://")[0] not in _POSTGRES_SCHEMES:
        return url
    from onrecord.stores.postgres.address import address_of

    return address_of(url, os.environ.get(TENANT_VARIABLE)).shown


def of_tenant(url: str, tenant: str) -> str:
    """The URL of the same store in PostgreSQL for another tenant."""
    owners_desk(url)
    from onrecord.stores.postgres.address import with_tenant

    return with_tenant(url, tenant)


def owners_desk(url: str) -> tuple[ModuleType, Any]:
    """What the owner of a store in PostgreSQL does with it (`stores/postgres/people`), and the store's address."""
    if url.partition("://")[0] not in _POSTGRES_SCHEMES:
        raise InvalidInput(
            f"{shown_url(url)} is not a PostgreSQL URL",
            hint="use postgresql://user@host/database; a store in a file needs no setup, and has no tenants",
        )
    place = _postgres().address_of(url, os.environ.get(TENANT_VARIABLE))
    from onrecord.stores.postgres import people

    return people, place


def glance(url: str | None, project: str, name: str | None, also: tuple[str, ...] = ()) -> Present | None:
    """What the gate needs to know of a session, or of the project's only live one; None if it has to be opened."""
    file = store_file(url)
    if file is None:
        return None
    from onrecord.stores.sqlite.glance import look

    return look(file, (project, *also), name, store_key)


def glance_linked(url: str | None, link: str, kinds: Iterable[str] | None = None) -> Linked | None:
    """The session and agent of a linked conversation, quickly; None if the session has to be opened for that.

    A store that does not exist has no conversations. With `kinds`, only what events of these kinds say is present.
    """
    file = store_file(url)
    if file is None:
        return None
    from onrecord.stores.sqlite.glance import Linked, look_linked

    return look_linked(file, link, store_key, kinds) if os.access(file, os.F_OK) else Linked()


def restore(backup: str, url: str | None = None, *, check: Callable[[SessionStore], None]) -> str | None:
    """Replace the store by a backup once `check` accepts its sessions; returns where the old store is now."""
    file = store_file(url)
    if file is None:
        raise InvalidInput(f"{store_url(url)} is not a file, so a backup cannot replace it")
    from onrecord.session.session_store import SessionStore
    from onrecord.stores.sqlite import SQLiteStore
    from onrecord.stores.sqlite.restore import restore as put_in_place

    def checked(copy: str) -> None:
        try:
            keys = session_keys(f"{os.path.realpath(file)}.keys")
            records = SessionStore(SQLiteStore(copy, key=store_key, session_keys=lambda _beside: keys))
        except StoreCorrupt:
            raise StoreCorrupt(
                f"{backup} is damaged, or it is not a backup of a store",
                hint="nothing was changed; try an older backup",
            ) from None
        with records:
            check(records)

    return put_in_place(backup, file, checked, store_key)


def is_store(file: str) -> bool:
    """Whether a file is a store of ours, judged by its first bytes alone."""
    from onrecord.stores.sqlite.connection import is_store as ours

    return ours(file)


def store_key() -> bytes | None:
    """The key of encrypted stores: ONRECORD_KEY, or what `[encryption]` in the settings names; None without either."""
    from onrecord.machine.keys import configured_key

    return configured_key(settings().get("encryption", {}))


def session_keys(beside: str | None = None) -> SessionKeys:
    """The keys of single sessions: in the directory that `[session_keys]` names, or `beside`; under its store key."""
    from onrecord.machine.keys import configured_key
    from onrecord.machine.session_keys import SessionKeys

    chosen = dict(settings().get("session_keys", {}))
    directory = chosen.pop("directory", None)
    if directory is not None and not (isinstance(directory, str) and directory):
        raise InvalidInput("session_keys: 'directory' is not the path of a directory")
    place = os.path.abspath(os.path.expanduser(directory)) if directory else beside
    return SessionKeys(place, lambda: configured_key(chosen, "session_keys") or store_key())


def _sqlite_place(url: str) -> tuple[str, dict[str, Any]]:
    """Three slashes are relative to the working directory, four are absolute: as in SQLAlchemy."""
    from urllib.parse import parse_qsl, unquote, urlsplit

    parts = urlsplit(url)
    path = unquote(parts.path)[1:]
    if parts.netloc or not path.strip("/"):
        raise InvalidInput(f"{url} has no file name", hint="use sqlite:///relative/x.db or sqlite:////absolute/x.db")
    directory = os.path.dirname(path)
    if directory and not path.startswith("/") and not os.path.isdir(directory):
        raise InvalidInput(
            f"{url} is relative, and the directory {directory} does not exist here",
            hint=f"create it, or use four slashes for an absolute path: sqlite:////{path}",
        )
    options = dict(parse_qsl(parts.query))
    for name in options:
        if name not in _SQLITE_OPTIONS:
            raise InvalidInput(f"a SQLite store has no option {name!r}", hint="use durability=full or durability=fast")
    return path, options


def default_path() -> str:
    """One file in the user's data directory."""
    base = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    return os.path.join(os.path.expanduser(base), "onrecord", "onrecord.db")


def config_path() -> str:
    """Where the user's settings are."""
    if CONFIG_VARIABLE in os.environ:
        return os.path.expanduser(os.environ[CONFIG_VARIABLE])
    base = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return os.path.join(os.path.expanduser(base), "onrecord", "config.toml")


def settings() -> dict[str, Any]:
    """The user's settings; docs/reference/settings.md lists them."""
    path, hint = config_path(), f"correct it, or set {CONFIG_VARIABLE} to another file"
    try:
        if path != os.devnull and not stat.S_ISREG(os.stat(path).st_mode):
            raise InvalidInput(f"{path} is not a regular file", hint=hint)
        with open(path, "rb") as file:
            text = file.read()
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}", hint=hint) from None
    from onrecord.machine.toml import loads

    try:
        found = loads(text.decode())
    except ValueError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem}", hint="it must be a TOML file") from None
    for name, value in found.items():
        if name not in _SETTINGS or not isinstance(value, _SETTINGS[name]):
            wrong = f"{path}: {name!r} is not a setting, or has the wrong type"
            raise InvalidInput(wrong, hint="docs/reference/settings.md lists the settings")
    return found


def is_automatic(directory: str = os.curdir) -> bool:
    """Whether hooks record every conversation that takes place in a directory, also without `onrecord start`.

    ONRECORD_AUTO decides, then the nearest project in the settings `auto_register_in` and `auto_register_not_in`, then
    `auto_register`.
    """
    chosen = os.environ.get(AUTO_VARIABLE)
    if chosen:
        return chosen != "0"
    found = settings()
    if not found:
        return False
    places = (os.path.realpath(directory), *project_at(directory).names)
    on, off = (_nearest(found.get(name, ()), places) for name in ("auto_register_in", "auto_register_not_in"))
    return on > off if on != off else bool(found.get("auto_register"))


def is_following() -> bool:
    """Whether hooks start a process that copies a conversation while it grows: ONRECORD_FOLLOW, else `follow`."""
    chosen = os.environ.get(FOLLOW_VARIABLE)
    return chosen != "0" if chosen else bool(settings().get("follow", True))


def _nearest(folders: list[object], places: tuple[str, ...]) -> int:
    """The length of the longest of the folders that contains one of the places; 0 if none does."""
    around = (
        len(folder)
        for folder in folders
        if isinstance(folder, str) and any(place == folder or place.startswith(f"{folder}/") for place in places)
    )
    return max(around, default=0)


def set_automatic(project: str | None, *, wanted: bool | None) -> str:
    """Switch automatic recording on or off for a project, or for this user (None); wanted None removes the choice.

    Only these settings change; the rest of the file stays as it is. Returns the path of the file.
    """
    from pathlib import Path

    from onrecord.machine.files import PRIVATE_MODE, write_file
    from onrecord.machine.toml import with_setting

    path, known = Path(os.path.realpath(config_path())), settings()
    there = path.exists()
    text = path.read_text(encoding="utf-8") if there else ""
    try:
        if project is None:
            text = with_setting(text, "auto_register", wanted)
        else:
            for name, chosen in (("auto_register_in", True), ("auto_register_not_in", False)):
                others = [one for one in known.get(name, []) if one != project]
                text = with_setting(text, name, others + [project] * (wanted is chosen) or None)
    except ValueError as problem:
        raise InvalidInput(
            f"{path} cannot be changed: {problem}", hint="set auto_register_in = [...] in it by hand"
        ) from None
    if text.strip():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        mode = path.stat().st_mode & 0o7777 if there else None
        write_file(path, [text.encode()], mode=PRIVATE_MODE, exact_mode=mode)
    elif there:
        path.unlink()
    return str(path)


def chosen_automatic(project: str | None) -> bool | None:
    """What the settings say about automatic recording in exactly this project, or for this user (None)."""
    found = settings()
    if project is None:
        return found.get("auto_register")
    names = {"auto_register_in": True, "auto_register_not_in": False}
    return next((chosen for name, chosen in names.items() if project in found.get(name, ())), None)


def data_directory(url: str | None = None) -> str:
    """Where files go that must stay out of a repository: beside the store."""
    return os.path.dirname(os.path.abspath(store_file(url) or default_path()))


def state_directory() -> str:
    """Where this user's commands on this machine keep what is neither record nor setting."""
    base = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return os.path.join(os.path.expanduser(base), "onrecord")


def workspace_paths(session: Session, url: str | None = None) -> Paths:
    """Where STATE.md and NOTE.md of a session are: in the worktree, or beside the store where stealth is wanted."""
    from pathlib import Path

    from onrecord.work.project import git_directory, worktree_for
    from onrecord.workspace.files import STEALTH_KEY, Paths

    stealth = session.views.facts.scratch.get(STEALTH_KEY)
    if stealth or (stealth is None and settings().get("stealth")):
        folder = Path(data_directory(url)) / "sessions" / session.id
        return Paths(folder / "STATE.md", folder / "NOTE.md")
    root = Path(worktree_for(session, os.curdir))
    git = git_directory(str(root))
    return Paths(root / "STATE.md", root / ".onrecord" / "NOTE.md", Path(git) if git else None)


def profile_files() -> dict[str, str]:
    """The files of the profiles that can be chosen by name; the user's own come before the shipped ones."""
    own = os.path.join(os.path.dirname(config_path()), "profiles")
    shipped = os.path.join(os.path.dirname(os.path.abspath(__file__)), "profiles")
    found: dict[str, str] = {}
    for folder in (shipped, own):
        names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
        found |= {name[:-5]: os.path.join(folder, name) for name in names if name.endswith(".toml")}
    return found


def load_profile(name: str) -> Profile:
    """The profile of this name, or of a TOML file that is named by its path, checked."""
    from onrecord.session.profiles import check

    is_path = os.sep in name or name.endswith(".toml")
    path = os.path.expanduser(name) if is_path else profile_files().get(name)
    if path is None:
        raise NotFound(f"there is no profile {name!r:.80}", hint=f"use {', '.join(profile_files())}, or a file's path")
    import tomllib

    from onrecord.machine.files import refuse_special

    try:
        refuse_special(path)
        with open(path, "rb") as file:
            return check(tomllib.loads(file.read(PROFILE_BYTES).decode()), path if is_path else f"profile {name}")
    except OSError as problem:
        raise InvalidInput(f"{path} cannot be read: {problem.strerror}", hint="a profile is a TOML file") from None
    except (ValueError, RecursionError) as problem:
        raise InvalidInput(f"{path} is not valid TOML: {problem}", hint="a profile is a TOML file") from None


def instructions(profile: str | Profile | None = None, *, into: str | None = None, tools: bool = False) -> str:
    """The short block an agent needs, for a profile by name; with `into`, a prompt that has it exactly once.

    With `tools`, the agent has the tools of our MCP server, and the block has only what they do not say.
    In Jinja2: `environment.globals["onrecord_instructions"] = onrecord.instructions("research")`, and after rendering
    `onrecord.instructions("research", into=rendered)`, so that no override of a template can lose it.
    """
    from onrecord.views.instructions import block, placed

    text = block(load_profile(profile) if isinstance(profile, str) else profile, tools=tools)
    return text if into is None else placed(into, text)


NOTICES = ("waits", "ends", "limits", "crashes")
"""What a person can be notified of: an agent waits for them or ended, a limit was reached or has passed, a crash."""


def notify_settings() -> dict[str, Any]:
    """How the person wants to be notified (`[notify]`): bell, desktop, command, events; empty if they do not."""
    chosen: dict[str, Any] = settings().get("notify", {})
    for name, value in chosen.items():
        words = isinstance(value, list) and value and all(isinstance(one, str) and one for one in value)
        known = name == "events" and words and set(value) <= set(NOTICES)
        if not (known or (name == "command" and words) or (name in ("bell", "desktop") and isinstance(value, bool))):
            raise InvalidInput(
                f"notify: {name!r} is not a setting, or has the wrong type",
                hint=f"bell and desktop are true or false, command is a list of words, events: {', '.join(NOTICES)}",
            )
    return chosen


def secret_rules() -> Rules:
    """The rules for secrets: `[secrets]` in the settings, values of the environment and of the project's .env files."""
    from onrecord.redaction.known import known_values
    from onrecord.session.funnel import POLICIES, Rules

    chosen = settings().get("secrets", {})
    lists = {"redact_in": "redact", "refuse_in": "refuse", "keep_in": "keep"}
    kinds: dict[str, type] = {"policy": str, "environment": bool, "personal": bool, "rules": list, "allow": list}
    kinds |= dict.fromkeys(lists, list)
    for name, value in chosen.items():
        if name not in kinds or not isinstance(value, kinds[name]) or (name == "policy" and value not in POLICIES):
            raise InvalidInput(
                f"secrets: {name!r} is not a setting, or has the wrong value",
                hint="docs/guide/secrets.md lists them; policy is redact, refuse or keep",
            )
    known = {}
    if chosen.get("environment", True):
        from onrecord.work.dotenv import dotenv

        known = known_values(dotenv(os.curdir), "dotenv") | known_values(os.environ, "environment")
    policies = {str(project): policy for name, policy in lists.items() for project in chosen.get(name, ())}
    if not chosen.keys() & {"rules", "allow", "personal"}:
        return Rules(chosen.get("policy", "redact"), policies, known)
    from onrecord.redaction.own_rules import PERSONAL, allowed, rules_of

    own = [*rules_of(chosen.get("rules", [])), *(PERSONAL if chosen.get("personal") else ())]
    return Rules(chosen.get("policy", "redact"), policies, known, own, allowed(chosen.get("allow", [])))


def retention_policy(decided: Mapping[str, Any] | None = None) -> Policy:
    """The retention policy of the settings; what the owner of a store `decided` for a tenant takes their place."""
    from onrecord.session.retention import policy_of

    return policy_of(settings().get("retention", {}) | dict(decided or {}))
