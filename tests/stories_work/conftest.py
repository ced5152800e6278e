"""The command as in tests/cli, on the stores of tests/cli, with agents that take turns."""

import pytest

from tests.cli.conftest import Command, bytecode, command, pytest_generate_tests, store_kind, stores
from tests.forking import Done

__all__ = ["bytecode", "command", "pytest_generate_tests", "store_kind", "stores"]


class Agent:
    """One agent at work in the project of a command."""

    def __init__(self, command: Command, name: str) -> None:
        self.command = command
        self.name = name

    def do(self, *words: str, code: int = 0, **env: str) -> str:
        done = self.try_to(*words, **env)
        assert done.code == code, done
        return done.out + done.err

    def try_to(self, *words: str, **env: str) -> Done:
        return self.command.run(*words, env={"ONRECORD_AGENT": self.name, **env})


@pytest.fixture
def agent(command):
    """Makes the agent of a name."""

    def make(name: str) -> Agent:
        return Agent(command, name)

    return make
