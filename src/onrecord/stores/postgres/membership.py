"""What the login of a store may do for its tenant, and signing for what it reads where the tenant is audited.

The database enforces both: policies read `onrecord.members` with the name that the connection logged in with. This
module only makes the refusal a clear sentence, and signs in time.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from onrecord.errors import StoreReadOnly, TenantRefused

if TYPE_CHECKING:
    from onrecord.stores.postgres.connections import Connections

ASK_AGAIN_SECONDS = 30.0
"""How often a store asks whether its login is still a member, and whether its tenant is audited."""
GRACE_SECONDS = 60
"""An audit begins this long after it was switched on: by then every open store has asked again."""
SIGN_AGAIN_SECONDS = 1_800.0
"""How often a store signs for the same session; a signature counts for the rest of its hour and the next."""
SESSIONS_REMEMBERED = 10_000
EVERY_SESSION = "*"
"""What a search in all sessions signs for."""


class Standing(NamedTuple):
    """What the server says about a login and its tenant."""

    login: str
    role: str | None
    """writer or auditor; None for a login that is no member."""
    every_tenant: bool
    """Whether it may name any tenant."""
    unbound: bool
    """Whether policies do not bind it: a superuser."""
    audited_from: int | None
    retention: str | None


class Membership:
    """The standing of one store object; it is asked for again from time to time."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections
        self._signed: dict[str, float] = {}
        self.standing = self._ask()

    def writes(self) -> None:
        """Refuse a write by an auditor; the server would, too."""
        if self.standing.role != "writer":
            raise StoreReadOnly(
                f"the login {self.standing.login} is an auditor of tenant {self._connections.tenant}: it may only read",
                hint="use a login that is a writer of this tenant",
                step="grant_writer", login=self.standing.login, tenant=self._connections.tenant,
            )  # fmt: skip

    def sign(self, *sessions: str) -> None:
        """Before content is read: record who reads it, if the tenant is audited."""
        now = time.monotonic()
        if now - self._asked > ASK_AGAIN_SECONDS:
            self.standing = self._ask()
        if self.standing.audited_from is None or self.standing.unbound:
            return
        signed = self._signed
        due = [one for one in sessions if now - signed.get(one, -SIGN_AGAIN_SECONDS) >= SIGN_AGAIN_SECONDS]
        if not due:
            return
        self._connections.ask("sign", sessions=[one for one in due if "\0" not in one])
        if len(signed) + len(due) > SESSIONS_REMEMBERED:
            signed.clear()
        signed.update(dict.fromkeys(due, now))

    def retention(self) -> dict[str, Any]:
        """What the owner decided for this tenant: days by the names of the settings."""
        return dict(json.loads(self.standing.retention or "{}"))

    def _ask(self) -> Standing:
        tenant = self._connections.tenant
        ((login, *rest),) = self._connections.ask("membership")
        standing = Standing(login, *rest)
        if standing.role is None:
            raise TenantRefused(
                f"the login {standing.login} is not a member of tenant {tenant}", login=standing.login, tenant=tenant
            )
        self._asked = time.monotonic()
        return standing
