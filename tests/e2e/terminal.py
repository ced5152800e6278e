"""A terminal with a program in it, which a test reads and types into: tmux, inside the laboratory's room."""

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence

import pytest

from tests.e2e.lab import Lab
from tests.e2e.modelserver import patiently

COLUMNS, ROWS = 160, 50
COMMAND_SECONDS = 90
SCREEN_SECONDS = 60.0
TRIES, TRY_SECONDS = 4, 5.0
TYPED_SECONDS = 20.0
"""A busy program shows what was typed late. Typed again, the text would be there twice."""
KEY_SECONDS = 0.3
"""Time that a screen needs to react to a key."""


class Terminal:
    """One window of a separate tmux server. It ends with the laboratory."""

    def __init__(self, lab: Lab, argv: Sequence[str]) -> None:
        if shutil.which("tmux") is None:
            pytest.skip("cannot run here: tmux is not installed")
        self._lab = lab
        self._screens: list[str] = []
        """Every screen that was looked at."""
        self._environment = lab.environment
        size = ["-x", str(COLUMNS), "-y", str(ROWS)]
        # Without a status line, and with the window kept after the program's end, the screen is the program's own.
        self._tmux("new-session", "-d", *size, "-s", "lab", *argv, ";", "set-option", "remain-on-exit", "on")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(
            self._lab.room.command(["tmux", "-S", str(self._lab.scratch / "tmux"), "-f", "/dev/null", *words]),
            env=self._environment, cwd=self._lab.project, capture_output=True, text=True, check=False,
            timeout=COMMAND_SECONDS,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    def close(self) -> None:
        """End it, and what runs in it."""
        self._tmux("kill-server")

    @property
    def screen(self) -> str:
        self._screens.append(self._tmux("capture-pane", "-p", "-t", "lab"))
        return self._screens[-1]

    def shows(self, pattern: str, seconds: float = SCREEN_SECONDS) -> str:
        """Wait until the screen shows something."""
        seen = [""]

        def there() -> bool:
            seen[0] = self.screen
            return re.search(pattern, seen[0]) is not None

        try:
            patiently(there, f"the screen shows {pattern!r}", seconds)
        except AssertionError as why:
            raise AssertionError(f"{why}; it shows:\n{seen[0].strip()}") from None
        return seen[0]

    def showed(self, pattern: str) -> None:
        """See something that may be gone again: it was on a screen before, or it will be."""
        if not any(re.search(pattern, screen) for screen in self._screens):
            self.shows(pattern)

    def type(self, text: str) -> None:
        """Type a text, as keys."""
        self._tmux("send-keys", "-t", "lab", "-l", text)

    def press(self, *keys: str) -> None:
        """Press keys by tmux's names for them."""
        self._tmux("send-keys", "-t", "lab", *keys)

    def say(self, text: str, shows: str) -> None:
        """Type a text, see it on the screen, send it, and see its effect.

        A return that follows too soon is taken for a line end, or by a list of proposals; so there may be several.
        """
        self.until(re.escape(text[-20:]), lambda: self.type(text), TYPED_SECONDS)
        time.sleep(KEY_SECONDS)
        self.until(shows, lambda: self.press("Enter"))

    def until(self, pattern: str, act: Callable[[], None], seconds: float = TRY_SECONDS) -> None:
        """Do something, and again if a busy program missed it, until the screen shows its effect."""
        for _ in range(TRIES - 1):
            act()
            try:
                self.shows(pattern, seconds)
            except AssertionError:
                continue
            return
        act()
        self.shows(pattern)

    def choose(self, choice: str) -> None:
        """Move down a list until the mark is before the choice, and select it."""
        self.shows(re.escape(choice))
        for _ in range(ROWS):
            if re.search(rf"[›>●] *(\d+\. *)?{re.escape(choice)}", self.screen):
                self.press("Enter")
                return
            self.press("Down")
            time.sleep(KEY_SECONDS)
        raise AssertionError(f"{choice!r} cannot be chosen:\n{self.screen.strip()}")
