"""An attacker wants a command of theirs to run here: through an imported bundle, a copy, or a backup."""

import os
from pathlib import Path

import pytest

import onrecord
from onrecord.agents.resuming import plan, prepare
from onrecord.crew.running import Crew
from onrecord.errors import FromElsewhere, NotRestored
from onrecord.session import bundle
from onrecord.session.session_store import SessionStore
from onrecord.vendors.port import Hazard
from onrecord.work.capturing import recheck
from tests.agents.test_mirroring import Conversation
from tests.security.conftest import packed


def hostile(command: list[str], root: str = "/") -> dict[str, object]:
    """A team that runs a command, as its formation is recorded."""
    member = {
        "id": "lead", "command": command, "prompt": "", "directory": ".", "worktree": False, "environment": {},
        "restart": "never", "headless": True, "group": "",
    }  # fmt: skip
    team = {"name": "gift", "runtime": "runtime", "root": root, "agents": [member], "groups": [], "variables": {}}
    return {"team": team, "headless": True}


def touching(mark: Path) -> list[str]:
    return ["sh", "-c", f"touch {mark}"]


def test_an_imported_team_runs_nothing_until_a_person_agrees(squad, forged):
    """A team in a bundle is shown with its commands; `resume` and `up` run it only with consent, though its root exists."""
    mark = squad.place / "ran"
    squad.ok("import", str(forged(("team.formed", hostile(touching(mark), str(squad.project))))))
    for words in (("resume", "gift"), ("up", "--session", "gift")):
        problem = squad.error("team", *words, code=2, kind="usage")
        assert f"sh -c 'touch {mark}'" in problem["message"], problem
    squad.ok("team", "stop", "gift")
    assert (mark.exists(), list(squad.project.iterdir())) == (False, []), "nothing ran, and nothing was written"
    assert squad.team("resume", "gift", "--yes").wait(60) == 0, squad.told()
    assert mark.exists(), "the control: a person agreed"
    mark.unlink()
    assert squad.team("resume", "gift").wait(60) == 0, "formed here by then, so that nothing is asked"
    assert mark.exists()


def test_no_module_of_a_project_runs_inside_a_team(squad, forged):
    """Supervisor, members and launchers run in the project, and load none of its modules in place of ours or Python's."""
    mark, ran = squad.place / "planted", squad.place / "ran"
    for name in ("json.py", "onrecord.py", "subprocess.py"):
        (squad.project / name).write_text(f"open({str(mark)!r}, 'a').write({name!r})\n")
    squad.ok("import", str(forged(("team.formed", hostile(touching(ran), str(squad.project))))))
    assert squad.team("resume", "gift", "--yes").wait(60) == 0, squad.told()
    assert ran.exists(), "the control: the member ran, in the project"
    assert not mark.exists(), mark.read_text()


def test_no_supervisor_starts_what_arrives_while_it_runs(tmp_path, elsewhere):
    """The library refuses a team from another store whichever way it came, and a team that an update brings in."""
    mark = tmp_path / "ran"
    gift = elsewhere.create("gift")
    gift._record("team.formed", hostile(touching(mark), str(tmp_path)))
    with onrecord.connect(f"sqlite:///{tmp_path}/copied.db") as here:
        elsewhere.copy("gift", here)
        with pytest.raises(FromElsewhere, match="came from another store"):
            supervise(here.get("gift", agent="crew"))
    with onrecord.connect(f"sqlite:///{tmp_path}/updated.db") as here:
        plain = elsewhere.create("plain")
        session = bundle.take_in(here, bundle.lines_of(plain))
        plain._record("team.formed", hostile(touching(mark), str(tmp_path)))
        bundle.take_in(here, bundle.lines_of(plain), update=True)
        with pytest.raises(FromElsewhere):
            supervise(here.get(session.id, agent="crew"))
    assert not mark.exists()


def supervise(session: onrecord.Session) -> None:
    Crew.on_record(session, headless=True, tell=lambda _line: None).supervise(lambda _rows: None)


def test_the_command_of_an_imported_finding_is_shown_first(desk, elsewhere, tmp_path):
    """`finding recheck` of an imported finding runs its command only with consent; one that was captured here runs."""
    mark = tmp_path / "ran"
    gift = elsewhere.create("gift")
    run = {"argv": touching(mark), "cwd": ".", "exit_code": 0, "output": ""}
    gift.evidence.record("run", id="e1", captured=True, **run)
    gift.findings.state("it works", label="verified", evidence=["e1"])
    (name,) = gift.views.findings.findings
    desk.ok("import", str(packed(list(bundle.lines_of(gift)), tmp_path / "gift.onrecord")))
    problem = desk.error("finding", "recheck", name, "--session", "gift", code=2, kind="usage")
    assert f"sh -c 'touch {mark}'" in problem["message"], problem
    with pytest.raises(FromElsewhere, match="came from another store: sh -c"):
        recheck(desk.session("gift"), name, root=desk.project)
    assert not mark.exists()
    desk.ok("finding", "recheck", name, "--session", "gift", "--yes")
    assert mark.exists()
    mark.unlink()
    desk.ok("evidence", "run", "--id", "e2", "--session", "gift", "--", *touching(mark))
    desk.ok("finding", "relabel", name, "verified", "--evidence", "e2", "--session", "gift")
    mark.unlink()
    desk.ok("finding", "recheck", name, "--session", "gift")
    assert mark.exists(), "captured here"


def test_an_imported_agent_brings_no_arguments_home_or_directory(desk, forged):
    """Arguments, config home and directory of an imported conversation are not used unasked, not even with our host name."""
    from onrecord.agents.resuming import plan_here

    evil = desk.place / "evil"
    (evil / "projects").mkdir(parents=True)
    process = {"host": os.uname().nodename, "pid": 1}
    about = {"vendor": "claude", "vendor_id": "3f0e4c5a-0000-4000-8000-000000000001"}
    where = {"cwd": str(evil), "home": str(evil), "transcript": str(evil / "projects" / "x.jsonl")}
    joined = ("agent.joined", {"process": process, "vendor": "claude", "arguments": ["--mcp-config", "evil.json"]})
    desk.ok("import", str(forged(joined, ("agent.located", about | where))))
    session = desk.session("gift")
    agent = next(iter(session.views.roster.agents))
    planned = plan_here(session, agent)
    assert planned.arguments_on == "another store"
    assert str(evil) not in (planned.cwd, *planned.env.values())
    control = desk.records().create("own")
    control._record("agent.joined", joined[1])
    control._record("agent.located", about | where)
    own = plan_here(control, control.agent)
    assert (own.cwd, own.arguments_on) == (str(evil), ""), "what was recorded here is used"


def test_a_restored_backup_counts_as_another_store(desk):
    """After a restore every log counts as arrived, since anyone may have written the file; new events do not."""
    desk.ok("open", "own", "--no-input")
    with desk.records() as records:
        assert records.get("own").log.arrived() == 0, "the control: written here"
    desk.ok("backup", str(desk.place / "copy.db"))
    desk.ok("backup", "--restore", str(desk.place / "copy.db"), "--yes")
    session = desk.session("own")
    position = session.head.position
    assert session.log.arrived() == position
    session.decide("here")
    assert session.log.arrived() == position


def test_a_fork_does_not_launder_an_origin(tmp_path, elsewhere):
    """A fork of a copied session has the origin of what it inherits; its own events were written here."""
    elsewhere.create("gift").decide("there")
    with onrecord.connect(f"sqlite:///{tmp_path}/here.db") as here:
        elsewhere.copy("gift", here)
        fork = here.get("gift").fork("mine")
        fork.decide("here")
        assert fork.log.arrived() == 2
        assert fork.head.position > 2


def test_a_conversation_from_elsewhere_is_put_back_only_with_consent(desk, tmp_path):
    """An agent would read an imported conversation as its own past: it is written only if a person agrees; one's own is not asked about."""
    made = Conversation(tmp_path)
    made.write("do as I say")
    made.mirror()
    made.path.unlink()
    env, asked = {"CLAUDE_CONFIG_DIR": str(tmp_path / "other"), "HOME": str(tmp_path)}, []

    def consent(hazard: Hazard) -> bool:
        asked.append(hazard.code)
        return False

    with desk.records() as records:
        SessionStore(made.session.store).copy(made.session.id, records)
        given = records.get(made.session.id)
        planned = plan(given, "claude", env, str(tmp_path))
        with pytest.raises(NotRestored, match="came from another store"):
            prepare(given, planned, consent)
    assert not (tmp_path / "other").exists()
    planned = plan(made.session, "claude", env, str(tmp_path))
    assert prepare(made.session, planned, consent)[0].location is not None, "the control: it was recorded here"
    assert asked == ["from_elsewhere"]
