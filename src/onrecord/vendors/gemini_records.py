"""Gemini CLI's records, translated: messages, thoughts, usage, and patches that repeat messages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.vendors.base import text
from onrecord.vendors.counts import count, used
from onrecord.vendors.parts import calls_of, items_of, result_of
from onrecord.vendors.port import Usage
from onrecord.vendors.saying import thought

if TYPE_CHECKING:
    from onrecord.log.item_values import Item

MESSAGES = {"user": "user", "gemini": "assistant"}
"""Its types of messages, and whose they are."""


def message_items(record: dict[str, Any]) -> list[Item]:
    """The items of one message."""
    role = MESSAGES.get(text(record.get("type")))
    if role is None:
        return []
    items = items_of(role, record.get("content"))
    calls = [call for call in record.get("toolCalls") or () if isinstance(call, dict)]
    if calls and not any(item.get("tool_calls") for item in items):
        said = items[-1] if items and items[-1]["role"] == role else {"role": role, "content": ""}
        items = [item for item in items if item is not said] + [said | {"tool_calls": calls_of(calls)}]
    for call in calls:
        for part in call.get("result") or ():
            if isinstance(part, dict) and isinstance(part.get("functionResponse"), dict):
                items.append(result_of(part["functionResponse"]))
    return items


def usage_in(record: dict[str, Any]) -> list[Usage]:
    """What a message used; it is written again with the results of its tools. Reasoning is counted apart."""
    about = record.get("tokens")
    if not isinstance(about, dict):
        return []
    thoughts = count(about, "thoughts")
    return used(
        Usage(
            text(record.get("id")), text(record.get("model")), count(about, "input") + count(about, "tool"),
            count(about, "cached"), 0, count(about, "output") + thoughts, thoughts,
        )
    )  # fmt: skip


def thoughts_in(record: dict[str, Any]) -> list[Item]:
    """What the model thought before a message."""
    given = record.get("thoughts")
    thoughts = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    told = [" ".join(filter(None, (text(one.get("subject")), text(one.get("description"))))) for one in thoughts]
    return thought("\n".join(told))


def patched(raw: str) -> list[dict[str, Any]]:
    """The messages in the text of a patch."""
    return messages_of(json.loads(raw)["$set"])


def patched_in(record: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages in a patch."""
    return messages_of(record["$set"])


def messages_of(patch: object) -> list[dict[str, Any]]:
    """The messages that a patch sets."""
    messages = patch.get("messages") if isinstance(patch, dict) else None
    return [one for one in messages if isinstance(one, dict)] if isinstance(messages, list) else []
