"""A bare `onrecord` on a terminal: what needs a person and the command that helps, and a session to choose."""

import json
import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

from onrecord.surfaces.cli.shared.chooser import _moved
from tests.cli.conftest import PATIENCE, copied
from tests.cli.test_hints import parse
from tests.forking import SCRIPT

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture(scope="session")
def busy(template, tmp_path_factory, bytecode, stores):
    """Three live sessions, of which one needs a person; for tests that change nothing."""
    command = copied(template, tmp_path_factory.mktemp("busy"), bytecode, stores)
    command.ok("open", "docs", "--objective", "Write the guide")
    command.ok("open", "pay", "--objective", "Refund twice")
    command.ok("finding", "state", "No access to the logs", "--label", "blocked", "--session", "pay")
    command.ok("next", "Run it again", "--session", "docs")
    return command


@pytest.fixture
def mine(busy, tmp_path, bytecode, stores):
    """The same sessions in a store of one's own."""
    return copied(busy, tmp_path, bytecode, stores)


def in_shell(command, script, keys=()):
    """Run a script of commands in one terminal; keys are typed when the text before them has been shown."""
    child, terminal = pty.fork()
    if child == 0:
        os.chdir(command.project)
        path = f"{SCRIPT.parent}:{command.environment['PATH']}"
        os.execve("/bin/sh", ["sh", "-c", script], command.environment | {"PATH": path, "COLUMNS": "80"})
    shown, keys = "", list(keys)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if keys and keys[0][0] in shown:
            os.write(terminal, keys.pop(0)[1])
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                shown += os.read(terminal, 65_536).decode()
            except OSError:
                break
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), COLOUR.sub("", shown)


def test_what_needs_a_person_comes_first_with_the_command_that_helps(busy):
    """Numbered, each with its reason and one command; the others follow, numbered on, and nothing is resumed by q."""
    shown = COLOUR.sub("", busy.on_terminal().out).replace("\r\n", "\n")
    assert "1 session needs you\n" in shown
    assert re.search(
        r"1  !  pay  open  \S+ \S+\n   blocked: No access to the logs\n   onrecord finding list --label blocked "
        r"--session pay\n",
        shown,
    ), shown
    assert re.search(r"2  ○  docs +open +next: Run it again", shown), shown
    assert re.search(r"3  ○  fix-invite-403 +active +main +Why the 403\?", shown), shown
    assert "> 1  pay   Enter: resume" in shown


def test_a_list_marks_what_needs_a_person(busy):
    """In the status column for people, in the last column for scripts, and with reason and command as JSON."""
    shown = COLOUR.sub("", busy.on_terminal("list", columns=120).out)
    assert re.search(r"!  pay +open, needs you  ", shown), shown
    assert re.search(r"○  docs +open  ", shown), shown
    rows = [line.split("\t") for line in busy.ok("list").splitlines()]
    assert {row[0]: row[-1] for row in rows} == {"pay": "needs-you", "docs": "", "fix-invite-403": ""}
    listed = {one["name"]: one for one in busy.data("list", kind="sessions")}
    overview = {one["name"]: one for one in busy.data(kind="overview")["sessions"]}
    assert listed["pay"]["needs"] == ["blocked: No access to the logs"]
    assert listed == overview, "a session is described in one way"


def test_every_command_that_helps_can_be_typed(busy):
    """The commands of the overview are complete and parse."""
    for session in busy.data(kind="overview")["sessions"]:
        for need in session["needs_you"]:
            parse(need["command"])
            assert (need["kind"], need["why"]) == ("blocked", "blocked: No access to the logs")


@pytest.mark.parametrize(
    ("keys", "name"), [("\n", "pay"), ("2\n", "docs"), ("\x1b[B\x1b[B\n", "fix-invite-403"), ("\x1b[Ak\n", "docs")]
)
def test_a_number_or_the_arrows_choose_and_enter_takes_it(busy, keys, name):
    """A session without an agent's conversation is shown; the line above says which command that is."""
    shown = COLOUR.sub("", busy.on_terminal(keys=keys).out)
    assert f"onrecord show {name}\r\n" in shown
    assert re.search(rf"{'!' if name == 'pay' else '○'} {name} +\w+\r\n", shown)


def test_ctrl_c_leaves_and_the_terminal_is_as_before(busy):
    """Exit status 130, no traceback, and the shell that follows echoes again."""
    status, shown = in_shell(busy, "trap : INT; onrecord; echo left with $?; stty -a", [("leave", b"\x03")])
    assert "left with 130" in shown
    assert "Traceback" not in shown
    assert re.search(r"(?<!-)icanon", shown)
    assert re.search(r"(?<!-)\becho\b", shown)
    assert status == 0


def test_without_a_person_nothing_is_asked(busy):
    """--no-input, a pipe on standard input and --json list and end."""
    assert "leave" not in busy.on_terminal("--no-input").out
    done = busy.run()
    assert done.out.splitlines()[0].split("\t")[:4] == ["pay", "open", "needs-you", "blocked: No access to the logs"]
    assert done.out.splitlines()[0].endswith("\tonrecord finding list --label blocked --session pay")
    assert in_shell(busy, "onrecord < /dev/null")[0] == 0


def test_keys_move_the_choice():
    """Arrows go round, numbers are typed digit by digit, and a number that does not exist changes nothing."""
    assert _moved(b"\x1b[A", 0, "", 3) == (2, "")
    assert _moved(b"\x1b[B", 2, "", 3) == (0, "")
    assert _moved(b"1", 0, "", 12) == (0, "1")
    assert _moved(b"2", 0, "1", 12) == (11, "12")
    assert _moved(b"7", 11, "12", 12) == (6, "7")
    assert _moved(b"9", 1, "", 3) == (1, "")
    assert _moved(b"x", 1, "2", 3) == (1, "")


def test_resume_without_a_name_offers_the_likeliest_first(mine):
    """Sessions of this directory's branch come before newer ones; q resumes none, and a pipe gets the error."""
    code = (
        "import onrecord, os\n"
        "session = onrecord.connect().get('fix-invite-403', agent='claude')\n"
        "session.agents.locate('claude', 'c-1', cwd=os.getcwd(), branch='main')\n"
        "onrecord.connect().get('docs').facts.set_next_action('newer')\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=mine.project, env=mine.environment, check=True)
    shown = COLOUR.sub("", mine.on_terminal("resume", keys="q").out)
    assert re.search(r"1  ○  fix-invite-403 .*\r\n2  ○  docs", shown), shown
    assert "> 1  fix-invite-403   Enter: resume" in shown
    resumed = mine.on_terminal("resume", keys="2\n").out
    assert "no agent of docs has a conversation to resume; `onrecord continue docs`" in " ".join(resumed.split())
    assert resumed.endswith("docs is already open at position 3\r\n")
    error = mine.error("resume", code=4, kind="ambiguous_name")
    assert "`onrecord use " in error["hint"]


def test_an_agent_that_was_killed_long_ago_is_noticed(mine):
    """However many newer sessions there are, the overview records that an agent without a hook for it has ended."""
    code = (
        "import onrecord\n"
        "from onrecord import machine\n"
        "records = onrecord.connect()\n"
        "session = records.get('docs', agent='solver')\n"
        "session.agents.record_start(machine.identity() | {'pid': 2**22 + 1}, vendor='codex', via='hook')\n"
        "session.agents.locate('codex', 'conv-1')\n"
        "for number in range(25): records.create(f'newer-{number}')\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=mine.project, env=mine.environment, check=True)
    assert mine.data("show", "docs", kind="session")["roster"]["solver"]["here"]
    assert mine.data("--limit", "3", kind="overview")["more"]
    assert not mine.data("show", "docs", kind="session")["roster"]["solver"]["here"]


def test_show_has_the_roster_and_the_interruptions(mine):
    """Each agent with its vendor, whether it is here and its conversation; the last stops with their causes."""
    code = (
        "import onrecord, time\n"
        "session = onrecord.connect().get('docs', agent='solver')\n"
        "session.agents.record_start(None, vendor='codex', via='hook')\n"
        "session.agents.locate('codex', 'conv-1', cwd='/tmp', branch='topic')\n"
        "session.agents.record_interruption('usage_window', 'no more', resets_at=time.time() + 7200, vendor='codex')\n"
        "session.agents.record_end()\n"
    )
    subprocess.run([sys.executable, "-c", code], cwd=mine.project, env=mine.environment, check=True)
    shown = COLOUR.sub("", mine.on_terminal("show", "docs", env={"TZ": "JST-9"}).out)
    until = r"(\w\w\w )?\d\d:\d\d JST"
    assert re.search(
        rf"needs you +solver was stopped by its usage limit, until {until}\r\n +onrecord resume docs --wait", shown
    )
    assert re.search(r"agent solver +codex, left just now, conversation conv-1, in /tmp on topic", shown), shown
    assert re.search(rf"interrupted +just now, solver: its usage limit until {until}: no more", shown), shown
    exact = mine.run(env={"TZ": "JST-9"}).out
    assert re.search(r"until \d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", exact), "a pipe has UTC"
    data = mine.data("show", "docs", kind="session")
    assert [stop["cause"] for stop in data["interruptions"]] == ["usage_window"]
    assert data["needs_you"][0]["until"].endswith("Z")
    assert (data["roster"]["solver"]["vendor"], data["working"]) == ("codex", [])
    listed = mine.data("list", kind="sessions")[0]
    assert (listed["name"], listed["agent"], listed["vendor"]) == ("docs", "solver", "codex")
    wide = COLOUR.sub("", mine.on_terminal("list", columns=120).out)
    assert re.search(r"docs +open, needs you +Write the guide +solver \(codex\)", wide)


def test_use_chooses_for_one_terminal(busy):
    """Commands there mean that session; the environment and a name win; other terminals, pipes and agents do not see it."""
    script = (
        "onrecord use docs; onrecord show --json > one; ONRECORD_SESSION=pay onrecord show --json > two;"
        "onrecord show fix-invite-403 --json > three; onrecord show --json < /dev/null > four 2> four.err;"
        "setsid onrecord show --json > five 2>&1; onrecord use --clear; onrecord show > six 2>&1"
    )
    _status, shown = in_shell(busy, script)
    assert "commands in this terminal now mean docs" in shown
    assert "no session is chosen for this terminal" in shown
    names = [json.loads((busy.project / name).read_text())["data"]["name"] for name in ("one", "two", "three")]
    assert names == ["docs", "pay", "fix-invite-403"]
    for name in ("four.err", "five", "six"):
        assert "3 live sessions" in (busy.project / name).read_text(), name
    kept = busy.place / ".local" / "state" / "onrecord" / "terminals"
    assert kept.stat().st_mode & 0o777 == 0o700
    assert "Enter: show" in busy.on_terminal("show", keys="q").out


def test_a_used_session_that_ended_is_not_meant(mine):
    """The command says so and asks for another; one that a person chooses from the list works like a name."""
    script = (
        "onrecord use pay; onrecord close pay -q --anyway x; onrecord decide x; onrecord use; onrecord show | head -3"
    )
    _status, shown = in_shell(mine, script, [("leave", b"2\n")])
    assert "pay, chosen for this terminal, is closed" in shown
    assert "commands in this terminal now mean fix-invite-403" in shown
    assert "session\tfix-invite-403" in shown


def test_a_verb_that_reads_lets_a_person_choose(busy):
    """Where several sessions are live, `show` on a terminal offers them; the chosen one is shown, and q ends the command."""
    shown = COLOUR.sub("", busy.on_terminal("show", keys="2\n").out)
    assert "Enter: show" in shown
    assert "! pay " in shown.partition("q: leave")[2], shown
    left = busy.on_terminal("log", keys="q")
    assert (left.code, "error" in left.out) == (0, False)
    error = busy.error("show", code=4, kind="ambiguous_name")
    assert re.match(r"name one: `onrecord show \S+`; or choose it for this terminal: `onrecord use \S+`", error["hint"])


def test_use_needs_a_terminal(busy):
    """Without one there is nothing to choose for."""
    error = busy.error("use", "docs", code=2, kind="usage")
    assert error["message"] == "there is no terminal to choose a session for"
