"""One server and one browser for all tests of the page: the real command on a real store, and Debian's Chromium."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import pytest

from onrecord.connection import connect, open_store
from onrecord.session.session_store import SessionStore
from tests.skips import in_ci
from tests.web import samples

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
START_SECONDS = 90
ARGUMENTS = ["--disable-gpu", "--renderer-process-limit=1"]
"""Most of a tab's cost is its process; tabs of one address can share one."""


class Served(NamedTuple):
    """A running `onrecord web`."""

    url: str
    """With its token."""
    base: str
    """Without path and token."""
    records: SessionStore
    """The same store, for writing beside the page."""

    scratch: SessionStore
    """The same store, for sessions of single tests: they belong to another project."""

    def id_of(self, name: str) -> str:
        return self.records.find(name).session

    @property
    def token(self) -> str:
        return self.url.partition("token=")[2]


def start(folder: Path, *options: str) -> tuple[subprocess.Popen[str], str]:
    """Start the command on the store in a folder; the process, and the address it prints."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ONRECORD_", "XDG_", "GIT_"))
    } | {"HOME": str(folder), "ONRECORD_PROJECT": samples.PROJECT, "GIT_AUTHOR_NAME": "Ada"}
    command = [
        sys.executable,
        "-m",
        "onrecord",
        "web",
        "--json",
        "--port",
        "0",
        "--store",
        str(folder / "web.db"),
        *options,
    ]
    server = subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    return server, json.loads(server.stdout.readline())["data"]["url"]


def stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    assert server.wait(START_SECONDS) == 0
    assert server.stdout is not None
    server.stdout.close()


@pytest.fixture(scope="package")
def served(tmp_path_factory) -> Iterator[Served]:
    """The page of the sample sessions, with writes allowed."""
    folder = tmp_path_factory.mktemp("web")
    samples.fill(open_store(str(folder / "web.db"))).close()
    server, url = start(folder, "--allow-writes")
    parts = urlsplit(url)
    with connect(str(folder / "web.db"), project=samples.PROJECT) as records:
        scratch = SessionStore(records.store, project="scratch")
        yield Served(url, f"{parts.scheme}://{parts.netloc}", records, scratch)
    stop(server)


@pytest.fixture(scope="package")
def browser():
    """Chromium, driven by Playwright. CI fails without it.

    It ends with the tests of the page: as long as it runs, so does Playwright's event loop in this thread, and no test could run its own.
    """
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        assert not in_ci(), "the page is tested in a real browser: apt-get install chromium"
        pytest.skip("cannot run here: there is no Chromium (apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


class Watch:
    """What a page must never do: log an error, break its policy, or send a request to another host."""

    def __init__(self, context, host: str) -> None:
        self.problems: list[str] = []
        self.allowed: list[str] = []
        context.on("console", self._logged)
        context.on("weberror", lambda one: self.problems.append(str(one.error)))
        context.on("dialog", self._asked)
        context.on("request", lambda one: self._sent(one.url, host))
        context.add_init_script(
            "addEventListener('securitypolicyviolation', one => console.error(`policy: ${one.violatedDirective}`))"
        )

    def _logged(self, message) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def _asked(self, dialog) -> None:
        self.problems.append(f"a dialog: {dialog.message}")
        dialog.dismiss()

    def _sent(self, url: str, host: str) -> None:
        if not url.startswith(("data:", "blob:")) and urlsplit(url).netloc != host:
            self.problems.append(f"a request to {url}")

    def check(self) -> None:
        assert [one for one in self.problems if not any(word in one for word in self.allowed)] == []


@pytest.fixture(scope="package")
def context(browser, served) -> Iterator[tuple[Any, Watch]]:
    """One browser profile that has opened the address which the command printed."""
    made = browser.new_context(
        viewport={"width": 1300, "height": 850}, permissions=["clipboard-read", "clipboard-write"]
    )
    made.set_default_timeout(60_000)
    watch = Watch(made, urlsplit(served.base).netloc)
    page = made.new_page()
    page.goto(served.url)
    # An empty page of the same address keeps the process for the tabs that follow.
    page.route(
        "**/empty", lambda route: route.fulfill(content_type="text/html", body='<link rel="icon" href="data:,">')
    )
    page.goto(f"{served.base}/empty")
    yield made, watch
    made.close()


@pytest.fixture
def page(context):
    """A tab. Whatever a test does in it, no error is logged, no policy is broken and no request leaves this machine."""
    made, watch = context
    watch.problems.clear()
    watch.allowed.clear()
    tab = made.new_page()
    tab.watch = watch
    yield tab
    tab.close()
    watch.check()
