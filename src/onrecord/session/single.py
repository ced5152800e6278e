"""One event of an agent, recorded without folding the log: for a hook that has read which session and agent it is.

The store makes the same checks as for any other append. What depends on views is recorded through a `Session`.
"""

from __future__ import annotations

from onrecord import machine
from onrecord.log.codec import encode_plain, seal, seal_own
from onrecord.log.head import LIVE
from onrecord.log.names import ID_LIMIT, make_event_id
from onrecord.session.funnel import funnel_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from onrecord.log.events import Draft
    from onrecord.log.store import Store
    from onrecord.views.values import Json


def sealed(  # noqa: PLR0917  # on the hottest path, where names cost time
    kind: str, data: Any, id: str | None, at: int, by: str, run: int, because: int | None,
    plain: bool = False,  # noqa: FBT001, FBT002  # as above
    encode: Callable[[Any], bytes] = encode_plain,
) -> Draft:  # fmt: skip
    """Seal an event with an id and a salt of its own. Another thread may call it: it takes no lock and never waits."""
    entropy = machine.portion()
    if id is not None:
        return seal(kind, data, id, at, by, run, entropy[:16], because, plain, encode)
    id = make_event_id(at // 1000, entropy[16:])
    return seal_own(kind, data, id, at, by, run, entropy[:16], because, plain, encode)


def tool_used(agent: str, tool: str, act: str, call: str, about: dict[str, Json]) -> tuple[dict[str, Json], str | None]:
    """The payload and the id of the event that a tool ran; the same call has the same id."""
    id_ = f"tool/{agent}/{call}"
    known = bool(call) and len(id_) <= ID_LIMIT and id_.isprintable()
    data = {"tool": tool, "act": act} | {name: value for name, value in about.items() if value not in (None, "")}
    return data, id_ if known else None


def record_tool(
    store: Store, session: str, agent: str, tool: str, act: str, *, call: str, at: int, **about: Json
) -> bool:
    """Record that a tool of an agent ran; False if the session has ended."""
    head = store.head(session)
    if head.status not in LIVE:
        return False
    data, id_ = tool_used(agent, tool, act, call, about)
    drafts, notices = funnel_of(store).passed(
        (sealed("tool.used", data, id_, at, agent, head.run, None),), lambda: head.project
    )
    store.append(session, [*drafts, *notices])
    return True
