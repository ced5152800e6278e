"""The frame of every page: its head, its scripts, and what the script needs to know."""

from __future__ import annotations

from hashlib import sha256
from importlib.resources import files
from typing import TYPE_CHECKING, NamedTuple

from onrecord.pages.frame import STYLE
from onrecord.pages.text import attribute
from onrecord.web import live

if TYPE_CHECKING:
    from collections.abc import Mapping

_OWN = ("page.css", "page.js", "home.js", "session.js", "timeline.js", "acting.js", "worker.js")
_TYPES = {"css": "text/css; charset=utf-8", "js": "text/javascript; charset=utf-8"}


class Asset(NamedTuple):
    """A file that pages load: its bytes, its type, and a version that changes with them."""

    body: bytes
    type: str
    version: str


def _asset(name: str, body: bytes) -> Asset:
    return Asset(body, _TYPES[name.rpartition(".")[2]], sha256(body).hexdigest()[:12])


def assets() -> dict[str, Asset]:
    """The files of the page, by name. No other name can be asked for."""
    folder = files("onrecord.web") / "static"
    found = {name: _asset(name, (folder / name).read_bytes()) for name in _OWN}
    return found | {"style.css": _asset("style.css", STYLE.encode())}


class Frame(NamedTuple):
    """What every page of one server has in common."""

    base: str
    """The prefix of every address."""
    assets: Mapping[str, Asset]
    project_name: str
    allow_writes: bool
    person: str

    def asset(self, name: str) -> str:
        """The address of a file; it changes when the file does."""
        return f"{self.base}/static/{name}?v={self.assets[name].version}"


def document(frame: Frame, title: str, body: str, *, view: str, data: Mapping[str, str]) -> str:
    """A whole page. `data` is for its script; the body is HTML, everything else is text."""
    about = {"base": frame.base, "view": view, "worker": frame.asset("worker.js"), "beat": str(live.BEAT_SECONDS)}
    about |= dict(data)
    told = "".join(f' data-{name}="{attribute(value)}"' for name, value in about.items())
    scripts = "".join(
        f'<script type="module" src="{frame.asset(name)}"></script>' for name in (f"{view}.js",) if name in frame.assets
    )
    return (
        f'<!doctype html><html lang="en"{told}><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f'<title>{attribute(title)}</title><link rel="icon" href="data:,">'
        f'<link rel="stylesheet" href="{frame.asset("style.css")}">'
        f'<link rel="stylesheet" href="{frame.asset("page.css")}">'
        f"{scripts}</head><body>{body}</body></html>"
    )
