"""Stores as they are often written: the controls of the torture. They fail every attack, so each attack can fail."""

import json
import os
import pickle
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

from onrecord.testing.torture import Driver, Turn


class CarelessDriver(Driver):
    """Every message is a new copy of the whole session, sorted by the clock, unpickled when it is read.

    Each copy is complete or not there at all, so what goes wrong is what an attack is about, never a torn file.
    """

    name = "careless 1.0"

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self.place = Path(directory) / "sessions"
        if not self.place.exists():
            time.sleep(0.05)
            self.place.mkdir()

    def _rows(self, session: str) -> list[tuple[float, str]]:
        copies = sorted(self.place.glob(f"{session}.*"))
        rows: Any = pickle.loads(copies[-1].read_bytes()) if copies else []
        return rows if isinstance(rows, list) else []

    def _save(self, session: str, rows: list[tuple[float, str]]) -> None:
        number = len(list(self.place.glob(f"{session}.*")))
        unfinished = self.place / f"unfinished.{os.getpid()}"
        unfinished.write_bytes(pickle.dumps(rows))
        unfinished.replace(self.place / f"{session}.{number:06}")

    def write(self, session: str, turn: Turn) -> None:
        for text in turn.texts:
            rows = self._rows(session)
            time.sleep(0.001)
            self._save(session, [*rows, (time.time(), text)])

    def read(self, session: str) -> list[str]:
        return [text for _at, text in sorted(self._rows(session))]

    def sessions(self, limit: int) -> Sequence[str]:
        return sorted({file.name.partition(".")[0] for file in self.place.iterdir()})[:limit]

    def work(self, session: str, tool: Callable[[], str]) -> None:
        said = tool()
        self.write(session, Turn("work", ("pay", said)))

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        if "paid" not in self.read(session):
            self.work(session, tool)

    def knows(self, session: str) -> bool:
        return "paid" in self.read(session)


class SlowDriver(CarelessDriver):
    """Lists the newest first, after more than a second."""

    def sessions(self, limit: int) -> Sequence[str]:
        time.sleep(1.1)
        return sorted({file.name.partition(".")[0] for file in self.place.iterdir()}, reverse=True)[:limit]


class ForgetfulDriver(Driver):
    """One line for each message; lines that it cannot read are left out, and nothing is known of a tool that ran."""

    name = "forgetful 1.0"

    def _file(self, session: str) -> Path:
        return Path(self.directory) / f"{session}.jsonl"

    def write(self, session: str, turn: Turn) -> None:
        for text in turn.texts:
            with self._file(session).open("a") as file:
                file.write(json.dumps(text) + "\n")
            time.sleep(0.001)

    def read(self, session: str) -> list[str]:
        texts = []
        for line in self._file(session).read_text(errors="replace").splitlines():
            with suppress(ValueError):
                texts.append(json.loads(line))
        return texts

    def work(self, session: str, tool: Callable[[], str]) -> None:
        self.write(session, Turn("work", ("pay", tool())))

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        """Do nothing."""

    def knows(self, session: str) -> bool:
        return self._file(session).exists() and "paid" in self.read(session)


class CheckedDriver(ForgetfulDriver):
    """The same, with a digest beside each file, which only its check on demand compares."""

    def write(self, session: str, turn: Turn) -> None:
        super().write(session, turn)
        self._file(session).with_suffix(".sha256").write_text(self._digest(session))

    def _digest(self, session: str) -> str:
        return sha256(self._file(session).read_bytes()).hexdigest()

    def is_sound(self) -> bool:
        digests = Path(self.directory).glob("*.sha256")
        return all(file.read_text() == self._digest(file.stem) for file in digests)


class AlarmedDriver(ForgetfulDriver):
    """The same, with a check that always finds damage."""

    def is_sound(self) -> bool:
        return False
