"""The tokens of a rollout: each id as a small box, coloured by where it comes from and by how likely it was."""

from __future__ import annotations

from typing import TYPE_CHECKING

from onrecord.pages.frame import empty
from onrecord.pages.text import attribute, shown
from onrecord.rollout.lane import Lane
from onrecord.rollout.recording import POLICY_AGENT
from onrecord.rollout.turns import SAMPLED

if TYPE_CHECKING:
    from onrecord.rollout.turns import TurnRecord
    from onrecord.web.session_page import Look

TOKENS_SHOWN = 2_000
"""How many tokens are drawn; the rest are counted."""
TURNS_SHOWN = 50
_SURE, _LIKELY = -0.1, -1.0
"""Logprobs from which a sampled token counts as certain, and as likely."""


def tokens_of(look: Look) -> str:
    """Every turn of the policy, with its ids."""
    lane = Lane(POLICY_AGENT).fold(look.session.events(upto=look.position))
    turns = lane.standing()
    if not turns:
        return empty("No token is on record at this position.")
    left = TOKENS_SHOWN
    parts = [_legend(turns)]
    for number, turn in enumerate(turns[-TURNS_SHOWN:], start=max(1, len(turns) - TURNS_SHOWN + 1)):
        drawn, used = _turn(turn, number, left)
        left -= used
        parts.append(drawn)
    return "".join(parts)


def _legend(turns: list[TurnRecord]) -> str:
    sampled = sum(len(turn.output) for turn in turns)
    prompts = sum(len(turn.prompt) for turn in turns)
    return (
        '<p class="ev tokens-legend">sampled, in the loss: <span class="tok sampled p0">likely</span> '
        '<span class="tok sampled p1">less likely</span> <span class="tok sampled p2">unlikely</span> · '
        '<span class="tok template">prompt</span> and <span class="tok injected">written by the client</span> '
        'masked out of it · <span class="tok repaired">joint</span> inserted where two renderings meet<br>'
        f"{len(turns):,} turns, {prompts:,} ids of prompts, {sampled:,} sampled</p>"
    )


def _turn(turn: TurnRecord, number: int, room: int) -> tuple[str, int]:
    boxes: list[str] = []
    place = 0
    for origin, count in turn.origins:
        boxes += [_box(token, origin, None) for token in turn.prompt[place : place + count]]
        place += count
    boxes += [
        _box(token, SAMPLED, turn.logprobs[at] if at < len(turn.logprobs) else None)
        for at, token in enumerate(turn.output)
    ]
    drawn = boxes[: max(0, room)]
    rest = len(boxes) - len(drawn)
    more = f'<span class="ev"> and {rest:,} more</span>' if rest else ""
    cause = f" · {attribute(turn.cause)}" if turn.cause else ""
    counts = f"keeps {turn.keep:,} ids · {len(turn.prompt):,} new ids of the prompt · {len(turn.output):,} sampled"
    heading = f'<h2>Turn {number} · {shown(turn.status)}{cause}</h2><p class="ev">{counts}</p>'
    return f'{heading}<p class="tokens">{"".join(drawn)}{more}</p>', len(drawn)


def _box(token: int, origin: str, logprob: float | None) -> str:
    if logprob is None:
        return f'<span class="tok {attribute(origin)}" title="{token} · {attribute(origin)}">{token}</span>'
    level = 0 if logprob > _SURE else 1 if logprob > _LIKELY else 2
    return f'<span class="tok sampled p{level}" title="{token} · logprob {logprob:.3f}">{token}</span>'
