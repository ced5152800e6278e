"""The funnel: every event of a session passes it before a store gets it, and leaves its secrets behind.

It sits where drafts become an append (`Session._append`), so no verb, hook or mirror can go around it. What it finds
is replaced (policy `redact`), refused (`refuse`) or left alone (`keep`), and is an event of its own in the same durable
step: rule, place and count, never the value. Rules are loaded with the first append and compiled where they are needed.
"""

from __future__ import annotations

from _weakref import ref

from onrecord import machine
from onrecord.errors import InvalidInput, SecretFound
from onrecord.lean_typing import NamedTuple
from onrecord.lean_weak import WeakKeys
from onrecord.log import digest
from onrecord.log.codec import ID_LIMIT, SALT_BYTES, seal
from onrecord.log.events import KINDS
from onrecord.redaction.quick import is_plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from onrecord.log.events import Draft
    from onrecord.log.store import Store
    from onrecord.redaction.scanner import OwnRule, Scanner
    from onrecord.redaction.values import Cleaner, Found

REDACT, REFUSE, KEEP = "redact", "refuse", "keep"
POLICIES = (REDACT, REFUSE, KEEP)
FOUND_KIND = "secret.found"
PLACES_LIMIT = 50
"""How many places one event names; the counts of the rest are summed."""
EXEMPT = frozenset(
    {"tokens.recorded", "samples.frozen", "samples.acknowledged", "session.renamed", "session.forked", "agent.joined",
     "agent.left", "agent.located", "team.scaled", "team.dismissed", "agent.spawned", "agent.recalled",
     "turn.begun", "turn.committed", "payload.erased", "profile.chosen", "budget.set", "budget.sliced",
     "usage.recorded", FOUND_KIND}
)  # fmt: skip
"""Kinds that consist of names, numbers and commands that must stay as they are."""
AS_IT_IS = frozenset({"team.formed"})
"""Kinds with commands that must run again: their secrets stay, and what was found is said."""
OURS = frozenset(
    {"token", "process", "keeper", "revision", "code", "worktree", "id", "name", "project", "place", "parent", "vendor",
     "vendor_id", "mark_before", "mark_after", "tip", "source"}
)  # fmt: skip
"""Fields at the top of a payload that our own code fills with ids and digests."""
PURPOSE = "secret marks"


class Rules(NamedTuple):
    """What the user chose: policies, own rules, known values."""

    policy: str = REDACT
    policies: Mapping[str, str] = {}  # never changed
    """Policies of single projects, by name or directory."""
    known: Mapping[str, str] = {}  # as above
    """Exact values and the kind of each."""
    own: Sequence[OwnRule] = ()
    allow: Sequence[re.Pattern[bytes]] = ()

    def policy_of(self, project: str) -> str:
        """The policy of a project: the one of the nearest directory that has one."""
        near = [name for name in self.policies if project == name or project.startswith(f"{name}/")]
        return self.policies[max(near, key=len)] if near else self.policy


class Funnel:
    """The funnel of one store."""

    def __init__(self, key: Callable[[], bytes], load: Callable[[], Rules] = Rules) -> None:
        self._key = key
        self._load = load
        self._rules: Rules | None = None
        self._scanner: Scanner | None = None

    @property
    def rules(self) -> Rules:
        """The user's choices, read once."""
        if self._rules is None:
            self._rules = self._load()
            unknown = {self._rules.policy, *self._rules.policies.values()} - set(POLICIES)
            if unknown:
                raise InvalidInput(
                    f"the policy for secrets must be one of {', '.join(POLICIES)}, not {unknown.pop()!r}"
                )
        return self._rules

    @property
    def scanner(self) -> Scanner:
        """All rules together."""
        if self._scanner is None:
            from onrecord.redaction.scanner import Scanner

            rules = self.rules
            if rules.known or rules.own or rules.allow:
                self._scanner = Scanner(known=rules.known, own=rules.own, allow=rules.allow)
            else:
                self._scanner = _scanner_of_our_rules()
        return self._scanner

    def is_clean(self, kind: str, data: Mapping[str, Any]) -> bool:
        """Whether a payload of single values has no secret; False may be wrong."""
        if kind in EXEMPT:
            return True
        text = "\n".join([f'"{name}":"{value}"' for name, value in data.items() if type(value) is str])
        try:
            return not self._finds(text.encode())
        except UnicodeEncodeError:
            return False

    def has_secret(self, text: str) -> bool:
        """Whether a text has a secret; for what is left out then, and not replaced."""
        return self._finds(text.encode(errors="surrogatepass"))

    def _finds(self, payload: bytes) -> bool:
        """Whether a payload may have a secret; what is short and plain does not load the rules."""
        if self._scanner is None:
            rules = self.rules
            if not rules.own and is_plain(payload, rules.known):
                return False
        return bool(self.scanner.find(payload))

    def passed(self, drafts: Sequence[Draft], project: Callable[[], str]) -> tuple[Sequence[Draft], list[Draft]]:
        """The drafts without secrets, and the events that say what was found; `SecretFound` under `refuse`.

        `project` is asked only where something was found: a session would have to fold its newest events for it.
        """
        find = self._finds if self._scanner is None else self._scanner.find
        suspects = [number for number, one in enumerate(drafts) if one.kind not in EXEMPT and find(one.payload)]
        if not suspects:
            return drafts, []
        made, notices = list(drafts), []
        policy = self.rules.policy_of(project())
        for number in suspects:
            draft = made[number]
            chosen = KEEP if draft.kind in AS_IT_IS and policy == REDACT else policy
            cleaner = self.cleaner(chosen)
            data = cleaned(cleaner, draft.kind, draft.data)
            if not cleaner.found:
                continue
            if chosen == REFUSE and draft.kind != "payload.kept":
                raise refusal(draft.kind, cleaner.found)
            if chosen != KEEP:
                made[number] = _resealed(draft, data)
            notices.append(notice(draft, cleaner.found, chosen))
        return made, notices

    def cleaner(self, policy: str = REDACT) -> Cleaner:
        """What replaces and counts."""
        from onrecord.redaction.values import Cleaner

        return Cleaner(self.scanner, self._key, replace=policy != KEEP)


def cleaned(cleaner: Cleaner, kind: str, data: Any) -> Any:
    """The payload without secrets; the records of a partner are JSON text and stay it."""
    if not isinstance(data, dict):
        return cleaner.value(data)
    ours = OURS if kind in KINDS else frozenset[str]()
    made = {}
    for name, part in data.items():
        known = cleaner.text(name, "")
        made[known] = part if name in ours or name == "lines" else cleaner.value(part, known, known)
    lines = data.get("lines")
    if kind == "payload.kept" and isinstance(lines, list):
        return made | {"lines": [cleaner.record(one, "lines") if isinstance(one, str) else one for one in lines]}
    return made if lines is None else made | {"lines": cleaner.value(lines, "lines")}


def _resealed(draft: Draft, data: Any) -> Draft:
    made = seal(draft.kind, data, draft.id, draft.at, draft.by, draft.run, draft.salt, draft.because)
    return made._replace(v=draft.v)


def notice(draft: Draft, found: Found, policy: str, part: str = "") -> Draft:
    """The event that says what was found in another one, to append with it."""
    rows = [{"rule": rule, "place": place, "count": count} for (rule, place), count in sorted(found.items())]
    rest = sum(found.values()) - sum(int(str(row["count"])) for row in rows[:PLACES_LIMIT])
    data = {"found": rows[:PLACES_LIMIT], "policy": policy, "kind": draft.kind, "event": draft.id}
    id_ = f"secret/{part}{draft.id}"
    if len(id_) > ID_LIMIT:
        id_ = f"secret/{part}{digest.sha256(draft.id.encode()).hexdigest()}"
    salt = machine.entropy(SALT_BYTES)
    return seal(FOUND_KIND, data | ({"more": rest} if rest else {}), id_, draft.at, draft.by, draft.run, salt)


def refusal(kind: str, found: Found) -> SecretFound:
    """The error that names what was found and where, and nothing of it."""
    said = ", ".join(f"{rule} in {place}" for rule, place in sorted(found)[:3])
    return SecretFound(f"nothing was recorded: {kind} has {'a secret' if len(found) == 1 else 'secrets'} ({said})")


_OUR_RULES: list[Scanner] = []
"""The scanner without rules of a user, once it is needed: it takes milliseconds to make, so all stores share it."""


def _scanner_of_our_rules() -> Scanner:
    if not _OUR_RULES:
        from onrecord.redaction.scanner import Scanner

        _OUR_RULES.append(Scanner())
    return _OUR_RULES[0]


_FUNNELS: WeakKeys[Store, Funnel] = WeakKeys()


def funnel_of(store: Store) -> Funnel:
    """The funnel of a store: all handles on it share one."""
    found = _FUNNELS.get(store)
    if found is None:
        found = _FUNNELS[store] = Funnel(_key_of(store))
    return found


def configure(store: Store, load: Callable[[], Rules]) -> Store:
    """Let a store's funnel read the user's choices when it is first used."""
    _FUNNELS[store] = Funnel(_key_of(store), load)
    return store


def _key_of(store: Store) -> Callable[[], bytes]:
    """The key of the marks, asked for when there is something to mark; it does not keep the store alive."""
    weak = ref(store)

    def key() -> bytes:
        alive = weak()
        return alive.key(PURPOSE) if alive is not None else b""

    return key


def clean_records(funnel: Funnel, records: Iterable[str], project: str) -> tuple[list[str], Found]:
    """Records of a vendor's transcript without secrets, and what was found; refused ones are redacted too."""
    policy = funnel.rules.policy_of(project)
    cleaner = funnel.cleaner(policy)
    return [cleaner.record(one, "lines") for one in records], cleaner.found
