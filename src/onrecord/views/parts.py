"""Parts of a content (text, images) in the form each model API expects. A part of one vendor's form is translated."""

from __future__ import annotations

import json
from typing import Any

from onrecord.log.readings import MEDIA

_UNSPOKEN = ("thinking", "redacted_thinking", "reasoning")
"""A model's thoughts: only its own vendor can read them, and they go back to it word for word or not at all."""
_TEXTS = ("text", "input_text", "output_text")
_OWN = {
    "openai": {"file", "input_audio"},
    "openai-responses": {"input_file"},
    "anthropic": {"document", "search_result"},
    "gemini": {"file_data", "fileData"},
}
"""What only its own vendor has, such as documents and files by their ids: it goes there as it is, and nowhere else."""


class Part:
    """A text, an image as data (base64) or as a URL, or what only its own vendor has."""

    __slots__ = ("data", "media_type", "own", "text", "url")

    def __init__(
        self, text: str = "", media_type: str = "", data: str = "", url: str = "", own: dict[str, Any] | None = None
    ) -> None:
        self.text = text
        self.media_type = media_type
        self.data = data
        self.url = url
        self.own = own


def parts_of(content: object, dialect: str = "") -> list[Part]:
    """What a content says, whichever vendor's form its parts have; what only the vendor of `dialect` has, as it is."""
    if isinstance(content, str):
        return [Part(content)] if content else []
    if not isinstance(content, list):
        return [] if content is None else [Part(text_of(content))]
    return [made for part in content if (made := _part(part, dialect)) is not None]


def text_of(value: object) -> str:
    """A content or a result as text."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(part, dict) and "type" in part for part in value):
        return "\n".join(part.text or "[image]" for part in parts_of(value))
    return "" if value is None else json.dumps(value, ensure_ascii=False)


def media_line(part: dict[str, Any]) -> str:
    """An image or file of a mirrored conversation in one line: its type, size and position in the record."""
    where = part.get("url") or "/".join(map(str, part.get("at") or ()))
    return f"[{part.get('media_type')}, {part.get('bytes', 0):,} bytes, at {where}]"


def _part(part: object, dialect: str) -> Part | None:
    if isinstance(part, str):
        return Part(part)
    if not isinstance(part, dict):
        return Part(text_of(part))
    kind = part.get("type")
    if kind in _UNSPOKEN:
        return None
    if kind in _TEXTS or (kind is None and isinstance(part.get("text"), str)):
        return Part(str(part.get("text", ""))) if part.get("text") else None
    if kind == MEDIA:
        return Part(media_line(part))
    image = _image(part)
    if image is not None and (dialect == "gemini" or image.media_type.startswith("image/") or not image.media_type):
        return image
    if _is_own(part, dialect):
        return Part(own=part)
    return Part(f"[{kind or (image and image.media_type) or 'a part'} that this format cannot express]")


def _is_own(part: dict[str, Any], dialect: str) -> bool:
    kind, own = part.get("type"), _OWN.get(dialect, set[str]())
    if _is_stored_image(part):
        return dialect == ("anthropic" if kind == "image" else "openai-responses")
    return kind in own if isinstance(kind, str) else any(name in part for name in own)


def is_image(part: dict[str, Any]) -> bool:
    """Whether a part is an image, in whichever vendor's form."""
    return _image(part) is not None or _is_stored_image(part)


def is_media(part: dict[str, Any]) -> bool:
    """Whether a part of a vendor's message is an image, a file or sound as data: no text that a model reads."""
    kind = part.get("type")
    made = kind == "image_generation_call" or (kind == "computer_screenshot" and "image_url" in part)
    spoken = "transcript" in part and "expires_at" in part  # an answer of OpenAI's, as sound
    return made or spoken or is_image(part)


def _is_stored_image(part: dict[str, Any]) -> bool:
    """Whether a part names an image that its vendor stores."""
    source = part.get("source") if part.get("type") == "image" else part if part.get("type") == "input_image" else None
    return isinstance(source, dict) and isinstance(source.get("file_id"), str)


def _image(part: dict[str, Any]) -> Part | None:
    kind = part.get("type")
    if kind in ("image_url", "input_image"):
        url = part.get("image_url")
        return _at(url.get("url") if isinstance(url, dict) else url)
    source = part.get("source")
    if kind == "image" and isinstance(source, dict):
        if source.get("type") == "base64":
            return Part(media_type=str(source.get("media_type")), data=str(source.get("data")))
        return _at(source.get("url"))
    if kind == "image":  # LangChain's own forms
        data = part.get("base64") or part.get("data")
        return Part(media_type=str(part.get("mime_type")), data=data) if isinstance(data, str) else _at(part.get("url"))
    inline = part.get("inline_data") or part.get("inlineData")
    if isinstance(inline, dict):
        media_type = inline.get("mime_type") or inline.get("mimeType")
        return Part(media_type=str(media_type), data=plain_base64(str(inline.get("data"))))
    return None


def plain_base64(text: str) -> str:
    """Base64 in its usual letters: Gemini's SDK writes those for URLs, which others refuse."""
    return text.translate({ord("-"): "+", ord("_"): "/"})


def _at(url: object) -> Part | None:
    if not isinstance(url, str) or not url:
        return None
    head, comma, data = url.partition(";base64,")
    if head.startswith("data:") and comma:
        return Part(media_type=head.removeprefix("data:"), data=data)
    return Part(url=url)


def _url(part: Part) -> str:
    return part.url or f"data:{part.media_type};base64,{part.data}"


def openai_content(content: object) -> Any:
    """For a chat completion: text, or parts if there is more than text."""
    if content is None or isinstance(content, str):
        return content
    return [
        part.own
        or (
            {"type": "text", "text": part.text}
            if part.text
            else {"type": "image_url", "image_url": {"url": _url(part)}}
        )
        for part in parts_of(content, "openai")
    ]


def responses_content(content: object, role: str) -> Any:
    """For the Responses API. What an assistant said is sent back as text."""
    if role == "assistant" or content is None or isinstance(content, str):
        return text_of(content)
    return [
        part.own
        or (
            {"type": "input_text", "text": part.text}
            if part.text
            else {"type": "input_image", "image_url": _url(part), "detail": "auto"}
        )
        for part in parts_of(content, "openai-responses")
    ]


def anthropic_content(content: object) -> list[dict[str, Any]]:
    """For Anthropic's API, as blocks; it refuses text that is only white space."""
    parts = [part for part in parts_of(content, "anthropic") if not part.text or part.text.strip()]
    return [
        part.own or ({"type": "text", "text": part.text} if part.text else _anthropic_image(part)) for part in parts
    ]


def _anthropic_image(part: Part) -> dict[str, Any]:
    source = (
        {"type": "url", "url": part.url}
        if part.url
        else {"type": "base64", "media_type": part.media_type, "data": part.data}
    )
    return {"type": "image", "source": source}


def gemini_content(content: object) -> list[dict[str, Any]]:
    """For Gemini's API, as parts; its SDK takes data as bytes."""
    from binascii import Error, a2b_base64

    made: list[dict[str, Any]] = []
    for part in parts_of(content, "gemini"):
        if part.own:
            made.append(part.own)
        elif part.text:
            made.append({"text": part.text})
        elif part.url:
            made.append({"file_data": {"file_uri": part.url}})
        else:
            try:
                made.append({"inline_data": {"mime_type": part.media_type, "data": a2b_base64(part.data)}})
            except (Error, ValueError):
                made.append({"text": f"[{part.media_type}, unreadable]"})
    return made
