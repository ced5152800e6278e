"""The live page: server time and bytes of its pages, and how soon a viewer sees an event in a real browser."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import onrecord
from bench.report import Figure
from onrecord.web.app import Site
from onrecord.web.home import home
from onrecord.web.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from onrecord.session.session_store import SessionStore

PROJECT = "bench"
TOKEN = "a-token-for-measurements"
VISIBLE = """
() => {
    window.seen = {};
    const look = () => {
        for (const found of document.querySelector("#timeline").textContent.matchAll(/mark-(\\d+)-/g)) {
            window.seen[found[1]] ??= performance.timeOrigin + performance.now();
        }
    };
    new MutationObserver(look).observe(document.querySelector("#timeline"), { childList: true, subtree: true });
}
"""


def timed(call: Callable[[], object]) -> float:
    """Seconds of processor time that a call takes in this thread: a busy machine does not count as slow code."""
    start = time.thread_time()
    call()
    return time.thread_time() - start


def _store(place: Path) -> SessionStore:
    return onrecord.connect(f"sqlite:///{place}/web.db?durability=fast", project=PROJECT)


def first_page(place: Path, *, quick: bool) -> list[Figure]:
    """The first page of many sessions, in a server that runs for a moment; against reading their heads once."""
    count = 1_000 if quick else 10_000
    records = _store(place)
    for number in range(count):
        session = records.create(f"session-{number}", objective=f"Objective of session {number}")
        drafts = [session.log.draft("next_action.set", {"text": f"step {number}", "command": None})]
        if number % 20 == 0:
            drafts.append(session.log.draft("finding.stated", {"claim": "no access", "label": "blocked"}))
        session.log.append(*drafts)
    site = Site(records, Settings(TOKEN))
    cold = timed(lambda: home(site.frame, site.shelf, None, "", site.desk.now()))
    samples = [timed(lambda: home(site.frame, site.shelf, None, "", site.desk.now())) for _ in range(30)]
    heads = [timed(lambda: records.every(("open", "active"), project="")) for _ in range(5)]
    session = records.get("session-7")
    moved = []
    for number in range(30):
        session.decide(f"decision {number}")
        moved.append(timed(lambda: home(site.frame, site.shelf, None, "", site.desk.now())))
    filtered = [timed(lambda: site.shelf.listed(None, "objective 77")) for _ in range(20)]
    size = len(home(site.frame, site.shelf, None, "", site.desk.now()).encode())
    name = f"first page of {count:,} sessions"
    against = (
        f"{statistics.median(samples) / statistics.median(heads):.2f}x of reading the heads once; cold {cold:.2f} s"
    )
    return [
        Figure(f"{name}, server time", statistics.median(samples) * 1e3, " ms", 50, detail=against),
        Figure(f"{name}, after an event", statistics.median(moved) * 1e3, " ms", 50),
        Figure(f"{name}, filter", statistics.median(filtered) * 1e3, " ms", 50),
        Figure(f"{name}, size", size / 1e3, " KB", 1_000),
    ]


def long_session(place: Path, *, quick: bool) -> list[Figure]:
    """The page of a long session in a server that never saw it, and parts of it from the middle."""
    count = 5_000 if quick else 50_000
    records = _store(place)
    records.create("long", objective="Many turns")
    agent = records.get("long", agent="claude").acquire()
    text = "The row commits on the primary; the first request reads a replica. " * 6
    for start in range(0, count, 500):
        agent.log.append(
            *(
                agent.log.draft(
                    "turn.recorded",
                    {
                        "items": [
                            {"role": "user", "content": f"question {number}"},
                            {"role": "assistant", "content": text},
                        ]
                    },
                )
                for number in range(start, start + 500)
            ),
            fenced=True,
        )
        agent.refresh()
    agent.leave()
    first, sizes = [], []
    jump: list[float] = []
    middle: list[float] = []
    for number in range(9):
        site = Site(records, Settings(TOKEN))
        site.shelf.refresh()
        made: list[str] = []
        first.append(timed(lambda site=site, made=made: made.append(site.desk.page("long", "timeline", None, None))))  # type: ignore[misc]  # defaults bind them
        sizes.append(len(made[0].encode()))
        for times, at in ((jump, count // 100 + number), (middle, count // 100 + number + 20)):
            times.append(timed(lambda site=site, at=at: site.desk.rows("long", at, None)))  # type: ignore[misc]  # as above
    read = [timed(lambda: sum(1 for _ in records.get("long").log.headers())) for _ in range(3)]
    lanes = timed(lambda: site.desk.lanes("long"))
    name = f"session of {count:,} turns"
    against = f"{statistics.median(first) / statistics.median(read):.2f}x of reading its headers once"
    return [
        Figure(f"{name}, first view, server time", statistics.median(first) * 1e3, " ms", 100, detail=against),
        Figure(f"{name}, first view, size", max(sizes) / 1e6, " MB", 1),
        Figure(
            f"{name}, 50 positions from the middle",
            statistics.median(middle) * 1e3,
            " ms",
            100,
            detail=f"the first ones {statistics.median(jump) * 1e3:.0f} ms: the turns before them are counted once",
        ),
        Figure(f"{name}, lanes for the first time", lanes * 1e3, " ms"),
    ]


def live(place: Path, *, quick: bool) -> list[Figure]:
    """From the commit of an event to its row in the document, with 20 viewers; and what 100 idle viewers cost."""
    from playwright.sync_api import sync_playwright

    records = _store(place)
    session = records.create("live", objective="Seen at once")
    marks = 20 if quick else 100
    with _serving(place) as (pid, url):
        host = urlsplit(url)
        viewers = [_listen(host, session.id) for _ in range(19)]
        browser_path = next(path for name in ("chromium", "google-chrome") if (path := shutil.which(name)))
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=browser_path)
            page = browser.new_context().new_page()
            page.goto(url.replace("/?", f"/s/{session.id}?"))
            page.wait_for_selector("#live.ok")
            page.wait_for_timeout(1_000)
            page.evaluate(VISIBLE)
            sent = {}
            for number in range(marks):
                session.decide(f"mark-{number}-")
                sent[str(number)] = time.time() * 1e3
                time.sleep(0.25)
            page.wait_for_timeout(1_500)
            seen = page.evaluate("window.seen")
            browser.close()
        delays = sorted(seen.get(number, float("inf")) - at for number, at in sent.items())
        viewers += [_listen(host, session.id) for _ in range(81)]
        time.sleep(2)
        seconds = 5.0 if quick else 20.0
        before = _cpu(pid)
        time.sleep(seconds)
        share = (_cpu(pid) - before) / seconds * 100
        for viewer in viewers:
            viewer.close()
    worst = delays[min(len(delays) - 1, int(len(delays) * 0.99))]
    detail = f"median {statistics.median(delays):.0f} ms, {marks} events"
    return [
        Figure("event to its row in the browser, 20 viewers, p99", worst, " ms", 250, detail=detail),
        Figure("100 idle viewers, of one core", share, " %", 2),
    ]


@contextlib.contextmanager
def _serving(place: Path) -> Iterator[tuple[int, str]]:
    command = [sys.executable, "-m", "onrecord", "web", "--json", "--port", "0", "--store", str(place / "web.db")]
    environment = os.environ | {"ONRECORD_PROJECT": PROJECT, "HOME": str(place)}
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert server.stdout is not None
    try:
        yield server.pid, json.loads(server.stdout.readline())["data"]["url"]
    finally:
        server.terminate()
        server.wait()
        server.stdout.close()


def _listen(host: Any, session: str) -> socket.socket:
    """A viewer that reads what it hears, and asks for the rows as the page does."""
    token = host.query.partition("token=")[2]
    line = socket.create_connection((host.hostname, host.port))
    request = f"GET /live?watch={session} HTTP/1.1\r\nHost: {host.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
    line.sendall(request.encode())

    def read() -> None:
        with contextlib.suppress(OSError):
            while heard := line.recv(65_536):
                if b"event: moved" in heard:
                    _ask(host, token, f"/s/{session}/rows/0")

    Thread(target=read, daemon=True).start()
    return line


def _ask(host: Any, token: str, path: str) -> None:
    with socket.create_connection((host.hostname, host.port)) as line:
        asked = (
            f"GET {path} HTTP/1.1\r\nHost: {host.netloc}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
        )
        line.sendall(asked.encode())
        while line.recv(65_536):
            pass


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
