"""A project or a tenant that has nothing on record, although the user named it: probably a typing error."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from onrecord.environment import PROJECT_VARIABLE
from onrecord.errors import NotFound
from onrecord.log.store import PAGE_LIMIT

if TYPE_CHECKING:
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call

DEFAULT_TENANT = "default"


def refuse_mistyped(call: Call, records: SessionStore, *, newcomer: bool = False) -> None:
    """Raise if the user named a tenant or a project without sessions; for verbs that found nothing to show.

    A directory that exists is a project without sessions. A new tenant or project begins with its first session; a
    verb that helps a newcomer accepts an empty tenant.
    """
    others = records.sessions(project="", limit=PAGE_LIMIT)
    tenant = records.url.partition("tenant=")[2].partition("&")[0]
    if not others and not newcomer and tenant not in ("", DEFAULT_TENANT):
        raise NotFound(
            f"the tenant {tenant!r} has no sessions",
            hint="check `ONRECORD_TENANT` and the store's URL; `onrecord open NAME` begins a new tenant",
        )
    named = call.get("project") or os.environ.get(PROJECT_VARIABLE)
    if not named or "all" in call or os.path.isdir(named):  # noqa: PTH112  # every command passes here
        return
    known = sorted({head.project for head in others})
    if known and records.project not in known and not records.sessions(limit=1):
        raise NotFound(f"no session belongs to the project {named!r:.200}", hint=_guess(named, known))


def _guess(named: str, known: list[str]) -> str:
    from shlex import quote

    from onrecord.surfaces.cli.catalogue import nearest

    guess = nearest(named, known) or nearest(named, [one.rpartition("/")[2] for one in known])
    whole = next((one for one in known if guess and guess in (one, one.rpartition("/")[2])), "")
    return f"did you mean `--project {quote(whole)}`?" if whole else "`onrecord list --all` lists those of all projects"
