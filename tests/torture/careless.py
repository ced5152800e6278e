"""A store as it is often written: the control of the torture. It fails every attack, so each attack can fail."""

import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from onrecord.testing.torture import Driver, Turn


class CarelessDriver(Driver):
    """Every turn is a new copy of the whole session, sorted by the clock, unpickled when it is read."""

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
        (self.place / f"{session}.{number:06}").write_bytes(pickle.dumps(rows))

    def write(self, session: str, turn: Turn) -> None:
        for text in turn.texts:
            rows = self._rows(session)
            time.sleep(0.001)
            self._save(session, [*rows, (time.time(), text)])

    def read(self, session: str) -> list[str]:
        return [text for _at, text in sorted(self._rows(session))]

    def work(self, session: str, tool: Callable[[], str]) -> None:
        said = tool()
        self.write(session, Turn("work", ("pay", said)))

    def go_on(self, session: str, tool: Callable[[], str]) -> None:
        if "paid" not in self.read(session):
            self.work(session, tool)

    def knows(self, session: str) -> bool:
        return "paid" in self.read(session)
