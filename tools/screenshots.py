"""Makes the pictures of the live page in docs/images: sample sessions, the real command, a real browser.

Run it with `./dev screenshots`, look at every picture, and commit those that changed for a reason.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from onrecord.connection import open_store  # noqa: E402  # the path above makes this a program of its own
from tests.web import samples  # noqa: E402  # as above

if TYPE_CHECKING:
    from collections.abc import Callable

FOLDER = ROOT / "docs" / "images"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SESSION = "fix-invite-403"


def home(page: Any, base: str, _session: str) -> None:
    page.goto(base)
    page.wait_for_selector("#live.ok")
    page.keyboard.press("j")
    page.keyboard.press("j")


def session(page: Any, base: str, id_: str) -> None:
    page.goto(f"{base}/s/{id_}#e11")
    page.wait_for_selector("#inspector dl")
    page.wait_for_selector("#lanes svg")
    page.wait_for_selector("#chain.ok")
    page.wait_for_timeout(500)


def past(page: Any, base: str, id_: str) -> None:
    page.goto(f"{base}/s/{id_}?at=17")
    page.wait_for_selector(".chip.past")
    page.wait_for_selector("#lanes .later")
    page.wait_for_timeout(500)


def tab(name: str) -> Callable[[Any, str, str], None]:
    def show(page: Any, base: str, id_: str) -> None:
        page.goto(f"{base}/s/{id_}?tab={name}")
        page.wait_for_selector("#lanes svg")
        page.wait_for_timeout(300)

    return show


def acting(page: Any, base: str, id_: str) -> None:
    session(page, base, id_)
    page.click("#act")
    page.fill("dialog [name=text]", "Run the suite ten times, then close")


def report(page: Any, file: str, _id: str) -> None:
    page.goto(f"file://{file}#e26")
    page.wait_for_selector("#inspector dl")
    page.wait_for_timeout(200)


PICTURES: dict[str, tuple[Callable[[Any, str, str], None], dict[str, Any]]] = {
    "web-home": (home, {}),
    "web-session": (session, {}),
    "web-past": (past, {"color_scheme": "dark"}),
    "web-findings": (tab("findings"), {}),
    "web-attempts": (tab("attempts"), {}),
    "web-act": (acting, {"color_scheme": "dark"}),
    "web-phone": (home, {"viewport": {"width": 380, "height": 740}}),
    "report": (report, {}),
    "web-phone-session": (session, {"viewport": {"width": 380, "height": 740}}),
}
"""Each picture: what is on it, and how the browser is set up."""


def main() -> int:
    from playwright.sync_api import sync_playwright

    wanted = sys.argv[1:] or list(PICTURES)
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        print("there is no Chromium here: apt-get install chromium", file=sys.stderr)
        return 1
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as place:
        records = samples.fill(open_store(f"{place}/web.db"))
        id_ = records.find(SESSION).session
        server, url = _serve(place)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=found)
            for name in wanted:
                show, options = PICTURES[name]
                context = browser.new_context(**({"viewport": {"width": 1300, "height": 800}} | options))
                page = context.new_page()
                page.goto(url)
                show(page, _exported(place) if show is report else url.partition("/?")[0], id_)
                page.screenshot(path=str(FOLDER / f"{name}.png"))
                context.close()
                print(f"{name}.png {(FOLDER / f'{name}.png').stat().st_size // 1024} KB")
            browser.close()
        server.terminate()
        server.wait()
        records.close()
    return 0


def _environment(place: str) -> dict[str, str]:
    return os.environ | {"HOME": place, "ONRECORD_PROJECT": samples.PROJECT, "GIT_AUTHOR_NAME": "Ada", "TZ": "UTC"}


def _exported(place: str) -> str:
    """The file of a report."""
    file = f"{place}/{SESSION}.html"
    command = [sys.executable, "-m", "onrecord", "export", SESSION, "--format", "html", "--out", file]
    subprocess.run([*command, "--store", f"{place}/web.db"], env=_environment(place), check=True)
    return file


def _serve(place: str) -> tuple[subprocess.Popen[str], str]:
    command = [
        sys.executable,
        "-m",
        "onrecord",
        "web",
        "--json",
        "--port",
        "0",
        "--store",
        f"{place}/web.db",
        "--allow-writes",
    ]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=_environment(place))
    assert server.stdout is not None
    return server, json.loads(server.stdout.readline())["data"]["url"]


if __name__ == "__main__":
    sys.exit(main())
