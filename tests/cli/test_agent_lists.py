"""Lists of agents, their processes and their conversations can be read in a narrow window, as `test_lists` asks."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from onrecord.crew.running import Crew
from onrecord.crew.team_file import CREW, read_team
from tests.agents.conftest import Desk
from tests.cli.test_lists import AGENT, HOSTILE, LONG, WINDOWS, cells, shown_lines
from tests.waiting import until

TEAM = f"""
[team]
name = "invites"
[[agent]]
id = "{AGENT}"
command = "claude --model opus"
prompt = "Review everything."
[[group]]
id = "worker-with-a-long-name"
count = 2
command = "codex"
prompt = "Take the next part."
"""
MEMBERS = [AGENT, "worker-with-a-long-name-1", "worker-with-a-long-name-2"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory, bytecode) -> Desk:
    """A team on record that never ran, and two conversations with long and hostile titles, one of them imported."""
    desk = Desk(tmp_path_factory.mktemp("desk"), bytecode)
    for prompt in (HOSTILE, f"Why do invited users see a 403? {'More of the question. ' * 20}"):
        subprocess.run(
            [desk.place / "bin" / "claude", "-p"], input=prompt.encode(), env=desk.environment, cwd=desk.project,
            stdout=subprocess.DEVNULL, check=True, timeout=60,
        )  # fmt: skip
    desk.ok("open", LONG)
    desk.ok("import", "claude", desk.transcripts()[0].stem, "--session", LONG)
    file = desk.project / "team.toml"
    file.write_text(TEAM)
    with desk.records() as records:
        session = records.open("invites", agent=CREW)
        crew = Crew(session, read_team(file), headless=True, tell=print)
        crew.take_lane()
        crew.form(headless=True)
        session.leave()
    return desk


@pytest.fixture(scope="module")
def running(desk) -> Iterator[tuple[int, str]]:
    """A program like Claude Code in a deep directory: its process, and its conversation."""
    pid_file, before = desk.place / "pid", set(desk.transcripts())
    deep = desk.project / "/".join(["a-directory-with-a-long-name"] * 4)
    deep.mkdir(parents=True)
    desk.plan(f"hang {pid_file}")
    with subprocess.Popen(
        [desk.place / "bin" / "claude", "-p"], env=desk.environment, cwd=deep,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    ) as agent:  # fmt: skip
        try:
            pid = int(until(lambda: pid_file.exists() and pid_file.read_text()))
            (transcript,) = set(desk.transcripts()) - before
            yield pid, transcript.stem
        finally:
            agent.kill()


def fits(lines: list[str], columns: int) -> None:
    assert max(map(cells, lines)) <= columns, "\n".join(lines)


def row_of(lines: list[str], key: str) -> str:
    rows = [line for line in lines if not line.startswith(" " * len("note: "))]  # the second line of a note
    (row,) = [line for line in rows if re.search(rf"(^|\s){re.escape(key)}(\s|$)", line)]
    return row


@pytest.mark.parametrize("columns", WINDOWS)
def test_the_members_of_a_team_are_named_in_full_with_their_state(desk, columns):
    """`team status`: each agent's name and state are on one line, whole, in a window of 60, 80 or 120 columns."""
    lines = shown_lines(desk, ["team", "status", "invites"], columns)
    fits(lines, columns)
    states = desk.data("team", "status", "invites", kind="team")["agents"]
    assert list(states) == MEMBERS
    for name, about in states.items():
        assert re.match(rf"{name} +{about['state']}(\s|$)", row_of(lines, name)), lines


@pytest.mark.parametrize("columns", WINDOWS)
def test_an_agent_that_can_be_adopted_is_shown_with_its_whole_conversation_id(desk, running, columns):
    """`adopt VENDOR`: process and conversation are on one line, whole; the directory shrinks."""
    pid, conversation = running
    lines = shown_lines(desk, ["adopt", "claude"], columns)
    fits(lines, columns)
    assert re.match(rf"{pid} +{conversation}(\s|$)", row_of(lines, str(pid)).strip()), lines


@pytest.mark.parametrize("columns", WINDOWS)
def test_a_conversation_that_can_be_imported_is_shown_with_its_whole_id(desk, columns):
    """`import VENDOR`: the id that the next command needs is whole; titles shrink, and hostile ones stay inert."""
    lines = shown_lines(desk, ["import", "claude"], columns)
    fits(lines, columns)
    listed = {one["vendor_id"] for one in desk.data("import", "claude", kind="conversations")}
    assert listed == {path.stem for path in desk.transcripts()}
    for id_ in listed:
        assert row_of(lines, id_).startswith(id_), lines
    shown = desk.on_terminal("import", "claude", columns=columns, env={"NO_COLOR": "1"}).out
    assert not set(shown) & {"\x1b", "\u202e", "\x07"}
