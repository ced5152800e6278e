"""The report in one file: how large it is beside the text of its transcript, and how soon a browser has it open."""

from __future__ import annotations

import random
import shutil
import statistics
from html import escape
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.report import Figure
from onrecord.log.text import spoken
from onrecord.pages.report import Contents, report
from onrecord.session.session_store import SessionStore
from onrecord.stores.memory import MemoryStore

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TURNS, QUICK_TURNS = 5_000, 500
ROUNDS = 3
PATIENCE_SECONDS = 180
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_SYLLABLES = (
    "re",
    "pli",
    "ca",
    "mem",
    "ber",
    "ship",
    "rou",
    "ter",
    "in",
    "vite",
    "ac",
    "cept",
    "to",
    "ken",
    "is",
    "the",
)
_CODE = 'def {0}(self, {1}):\n    if self.{1} < 3 and {0} != "{1}":\n        return {0}[{1}]'


def one_file(place: Path, *, quick: bool) -> list[Figure]:
    """All figures. The text is words, code and output of commands, 6 KB in each turn."""
    contents, texts = _session(QUICK_TURNS if quick else TURNS)
    start = perf_counter()
    html = "".join(report(contents))
    took = perf_counter() - start
    size, spoken_size = len(html.encode()), sum(len(text.encode()) for text in texts)
    about = f"{len(texts):,} texts, {spoken_size / 1e6:.1f} MB"
    figures = [
        Figure(
            "report: bytes of the file, over the text of the transcript", size / spoken_size, "x", 1.5, detail=about
        ),
        Figure("report: time to make it, for each MB of text", took / (spoken_size / 1e6), " s"),
    ]
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        return figures
    (place / "report.html").write_text(html)
    plain = "".join(f"<pre>{escape(text, quote=False)}</pre>" for text in texts)
    (place / "plain.html").write_text(f"<!doctype html><meta charset=utf-8>{plain}")
    return figures + _opened(place, found)


def _session(turns: int) -> tuple[Contents, list[str]]:
    chance = random.Random(17)
    words = ["".join(chance.choices(_SYLLABLES, k=chance.randint(1, 3))) for _ in range(2_000)]

    def prose(count: int) -> str:
        return "\n".join(" ".join(chance.choices(words, k=14)) for _ in range(count))

    session = SessionStore(MemoryStore(), project="bench").open("bench", objective="measure")
    for number in range(turns):
        code = _CODE.format(*chance.choices(words, k=2))
        call = {"id": f"c{number}", "name": "Bash", "arguments": {"command": f"pytest -k {chance.choice(words)}"}}
        items: list[dict[str, Any]] = [
            {"role": "user", "content": prose(2)},
            {
                "role": "assistant",
                "content": f"{prose(8)}\n\n```python\n{code}\n```\n\n- **{prose(1)}**",
                "tool_calls": [call],
            },
            {"role": "tool", "call": f"c{number}", "content": f"{prose(50)}\n{code}"},
            {"role": "assistant", "content": prose(4)},
        ]
        session.record_turn(items)
        if number % 50 == 0:
            session.findings.state(prose(1), "open")
    texts = [
        text if isinstance(text, str) else str(text)
        for turn in session.transcript() for item in turn.items for text in spoken(item) if text
    ]  # fmt: skip
    return Contents(session.views, list(session.events()), session.note(), 0, verified=True), texts


class Opened(NamedTuple):
    """What opening a page took, in seconds."""

    loaded: float
    """Until all of it is there and the page answers."""
    painted: float
    """Until something is visible."""
    busy: float
    """Processor time of the page's main thread: it does not depend on what else the machine does."""


def _opened(place: Path, program: str) -> list[Figure]:
    """The report and a plain page of the same text, opened in turn."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program)
        _open(browser, place / "report.html")
        ours = [_open(browser, place / "report.html") for _ in range(ROUNDS)]
        plain = _open(browser, place / "plain.html")
        browser.close()
    loaded, painted, busy = (statistics.median(values) for values in zip(*ours, strict=True))
    best = min(ours)
    return [
        Figure("report: opened, until all of it is there", loaded, " s", 2.0, detail=f"best {best.loaded:.2f}"),
        Figure("report: opened, until something is visible", painted, " s", detail=f"best {best.painted:.2f}"),
        Figure("report: processor time of opening it", busy, " s", 2.0, detail=f"best {best.busy:.2f}"),
        Figure("report: that, over a plain page of the same text", busy / plain.busy, "x", 1.0,
               detail=f"plain {plain.busy:.2f} s, {plain.loaded:.2f} s until there"),
    ]  # fmt: skip


def _open(browser: Browser, file: Path) -> Opened:
    context = browser.new_context(viewport={"width": 1280, "height": 860})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_SECONDS * 1_000)
    session = context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    start = perf_counter()
    page.goto(file.as_uri())
    page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    took = perf_counter() - start
    metrics = {one["name"]: one["value"] for one in session.send("Performance.getMetrics")["metrics"]}
    paint = page.evaluate("performance.getEntriesByType('paint')[0]?.startTime ?? 0") / 1_000
    context.close()
    return Opened(took, float(paint), metrics["TaskDuration"])
