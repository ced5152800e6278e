"""Parts of messages: text, images and files. An image is shown if its data is on record and its type is harmless."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from onrecord.log.readings import MEDIA, at_pointer
from onrecord.log.shapes import UNREADABLE
from onrecord.pages.markdown import to_html
from onrecord.pages.text import attribute, shown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from onrecord.pages.options import Options

IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
"""The images that are shown. SVG is not among them: it can carry scripts."""
IMAGE_LIMIT = 4_000_000
"""The longest image that is shown, in characters of base64; a larger one is only named."""
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]+={0,2}\s*")
_DATA_URL = re.compile(r"data:([\w./+-]{1,60});base64,")


def draw_parts(content: Any, options: Options, *, only_media: bool = False) -> str:
    """The parts of a message; with `only_media`, its images and files alone."""
    if not isinstance(content, list):
        return "" if only_media or not content else to_html(str(content))
    return "".join([_part(part, options, only_media=only_media) for part in content])


def _part(part: Any, options: Options, *, only_media: bool) -> str:
    if not isinstance(part, dict):
        return "" if only_media else to_html(str(part))
    if is_media(part):
        return _image(part, options)
    if only_media:
        return ""
    if thought := part.get("thinking"):
        return thinking(str(thought))
    if isinstance(part.get("text"), str):
        return thinking(part["text"]) if part.get("thought") else to_html(part["text"])
    said = json.dumps(part, ensure_ascii=False, indent=1)
    return (
        f'<details class="tool"><summary><code>{attribute(part.get("type", "part"))}</code></summary>'
        f'<pre class="out">{shown(said)}</pre></details>'
    )


def thinking(text: str, title: str = "thinking") -> str:
    """What an agent thought, folded; or another text that few people unfold."""
    if not text.strip():
        return ""
    return f'<details class="thinking"><summary>{title}</summary><div class="md">{to_html(text)}</div></details>'


def is_media(part: Mapping[str, Any]) -> bool:
    """Whether a part is an image or a file."""
    return part.get("type") in (MEDIA, "image", "image_url", "input_image")


def _image(part: Mapping[str, Any], options: Options) -> str:
    source = options.media(part) if options.media else None
    name = f"{part.get('media_type') or 'image'}"
    size = f", {part['bytes']:,} bytes" if isinstance(part.get("bytes"), int) else ""
    if not source:
        return f'<p class="media">[{shown(name)}{size}]</p>'
    return f'<p class="media"><img loading="lazy" src="{attribute(source)}" alt="{attribute(name)}{size}"></p>'


def data_url(part: Mapping[str, Any], lines: list[str] | None = None) -> str | None:
    """The image of a part as a `data:` URL; `lines` are the records of the event that the part names, if any."""
    named, data = _embedded(part)
    if data is None and lines is not None:
        named, data = str(part.get("media_type")), _on_record(part, lines)
    if data is None:
        return None
    whole = _DATA_URL.match(data[:100])
    if whole:
        named, data = whole[1], data[whole.end() :]
    fits = named in IMAGE_TYPES and len(data) <= IMAGE_LIMIT and _BASE64.fullmatch(data)
    return f"data:{named};base64,{''.join(data.split())}" if fits else None


def _embedded(part: Mapping[str, Any]) -> tuple[str, str | None]:
    source, url = part.get("source"), part.get("image_url")
    if isinstance(source, dict) and isinstance(source.get("data"), str):
        return str(source.get("media_type")), source["data"]
    if isinstance(url, dict):
        url = url.get("url")
    return "", url if isinstance(url, str) and url.startswith("data:") else None


def _on_record(part: Mapping[str, Any], lines: list[str]) -> str | None:
    try:
        _position, line, pointer = part["at"]
        found = at_pointer(json.loads(lines[line]), pointer)
    except UNREADABLE:
        return None
    return found if isinstance(found, str) else None
