"""What a record says in its conversation: prompts told from context, thinking marked, images by reference."""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, Any
from onrecord.log.items import text_of
from onrecord.log.readings import BEGINS, MEDIA, pointer_to
from onrecord.vendors.transcripts import Said

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from onrecord.log.item_values import Item

THINKING = frozenset({"thinking", "redacted_thinking", "reasoning"})
_BLOCK = r"\s*<(?!user_query)([a-z][a-z:]*(?:[_-][a-z:]+)+)(?:\s[^>]*)?>.*?</\1>\s*"
"""An element that a program puts into a user's message; the names of such elements have a dash or an underscore."""
_NAMES = r"[a-z:_-]*(?:[_-]context|[_-]instructions|-reminder|current_datetime|onrecord-data)"
_CONTEXT = rf"<({_NAMES})(?:\s[^>]*)?>(?:.*?</\1>|.*\Z)\s*"
"""Context that a program or a hook adds to what a person wrote; an element without an end goes to the end."""
_FENCED = (
    r"\s*(?:(?:<(?P<around>[a-z_-]+)>)?[^\n]*\n)?\[onrecord-data nonce=(?P<nonce>\w+)\].*?"
    r"\[/onrecord-data nonce=(?P=nonce)\]\s*(?:</(?P=around)>\s*)?"
)
"""What our own hook adds: fenced text of the record, after a line about it; some programs put an element around it."""


def said(items: Sequence[Item], record: Any, *, begins: bool = True, **about: Any) -> list[Said]:
    """The items as a reading has them; empty if the record only carries the program's own context."""
    found = [one for item in items for one in _spoken(item, record)]
    if not found:
        return []
    turn = BEGINS if begins and any(is_prompt(item) for item in found) else ""
    return [Said(found, **({"turn": turn} | about))]


def summary(words: object, **about: Any) -> list[Said]:
    """The summary of a compaction."""
    if not isinstance(words, str) or not words.strip():
        return []
    return [Said([{"role": "system", "content": words, "summary": True}], **about)]


def thought(words: object) -> list[Item]:
    """Thinking as an item of its own."""
    if not isinstance(words, str) or not words.strip():
        return []
    return [{"role": "assistant", "content": words, "thinking": True}]


def is_prompt(item: Item) -> bool:
    """Whether a person (or a program in a person's place) asks something here."""
    return item.get("role") == "user" and bool(beside_context(text_of(item)).strip())


def beside_context(text: str) -> str:
    """A user's message without the elements that the program put before it."""
    if "[onrecord-data nonce=" in text:  # the pattern takes quadratic time in a long line without it
        text = _without_fenced(text)
    while "<" in text and (found := _match(_BLOCK, text) or _match(_CONTEXT, text)) is not None:
        text = text[found.end() :]
    return text


def without_context(text: str) -> str:
    """A user's message without the context at its beginning and at its end."""
    if "[onrecord-data nonce=" in text:  # the pattern takes quadratic time in a long line without it
        text = _without_fenced(text)
    while text.startswith("<") and (found := _match(_CONTEXT, text)) is not None:
        text = text[found.end() :]
    if "</" in text and (found := _last(text)) is not None:
        return text[: found.start()].rstrip()
    return text


def _without_fenced(text: str) -> str:
    import re

    return re.sub(_FENCED, "", text, flags=re.DOTALL)


def _last(text: str) -> re.Match[str] | None:
    import re

    return re.search(_LAST, text, re.DOTALL)


def _match(pattern: str, text: str) -> re.Match[str] | None:
    """A pattern is compiled when a text may match it: most hooks copy a turn without any such text."""
    import re

    return re.match(pattern, text, re.DOTALL)


_LAST = rf"\s*<({_NAMES})(?:\s[^>]*)?>(?:(?!</?\1[\s>]).)*</\1>\s*\Z"


def _spoken(item: Item, record: Any) -> list[Item]:
    """An item with plain text as text, thinking apart, images by reference; none if it is only context."""
    if item["role"] == "system":
        return []  # the instructions of the program
    content = item.get("content")
    thoughts: list[Item] = []
    if isinstance(content, list):
        parts: list[Any] = []
        for part in content:
            if isinstance(part, dict) and (part.get("type") in THINKING or part.get("thought")):
                thoughts += thought(part.get("thinking") or part.get("text"))
            else:
                said = _part(part, record)
                if item["role"] != "user" or said.get("type") != "text" or without_context(said["text"]).strip():
                    parts.append(said)
        plain = all(isinstance(part, dict) and part.get("type") == "text" for part in parts)
        content = "\n".join(part["text"] for part in parts) if plain else parts
    elif not isinstance(content, str):
        content = ""
    if item["role"] == "user":
        content = without_context(content) if isinstance(content, str) else content
    made: Item = {**item, "content": content}
    silent = not content and not item.get("tool_calls") and item["role"] != "tool"
    return thoughts if silent else [*thoughts, made]


def _part(part: Any, record: Any) -> Any:
    if not isinstance(part, dict):
        return {"type": "text", "text": str(part)}
    if isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    media_type, data = _media(part)
    if not data:
        return part
    encoded = data.partition(",")[2] if data.startswith("data:") else data
    if data.startswith(("http:", "https:", "file:")):
        return {"type": MEDIA, "media_type": media_type, "url": data}
    return {"type": MEDIA, "media_type": media_type, "bytes": len(encoded) * 3 // 4, "at": pointer_to(record, data)}


def _media(part: dict[str, Any]) -> tuple[str, str]:
    """The type and the data of an image or file, in any of the forms that partners use."""
    source, inline, url = part.get("source"), part.get("inlineData"), part.get("image_url", part.get("url"))
    if isinstance(source, dict):
        kind, data = source.get("media_type") or part.get("type"), source.get("data") or source.get("url")
    elif isinstance(inline, dict):
        kind, data = inline.get("mimeType"), inline.get("data")
    else:
        data = url.get("url") if isinstance(url, dict) else url
        kind = part.get("mime") or (data[5:].partition(";")[0] if isinstance(data, str) and data[:5] == "data:" else "")
    return str(kind or part.get("type") or ""), data if isinstance(data, str) else ""
