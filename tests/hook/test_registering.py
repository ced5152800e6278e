"""Which agent a call belongs to: by environment, conversation id or process, never by directory; registered if the user wants."""

import json
import os
import shlex
import subprocess
import sys

import pytest

import onrecord
from onrecord import machine
from onrecord.connection import glance_linked
from onrecord.log.names import link_id
from onrecord.rules import ToolRequest, decide
from onrecord.session.kept_views import SNAPSHOT_EVERY
from onrecord.vendors.port import VENDORS, vendor
from onrecord.views.present import Present
from onrecord.views.values import Worktree
from onrecord.work.project import worktree_named
from tests.hook.conftest import CONVERSATION

LINK = link_id("claude", CONVERSATION)


def test_the_directory_alone_means_nothing(hooks):
    """A conversation that is not on record belongs to no agent, even in a project with one live session."""
    session = hooks.records().create("fix-403", agent="solver", objective="Fix it")
    session.attempts.start("pytest")
    before = session.views.position
    for event in ("SessionStart", "UserPromptSubmit", "Stop", "SessionEnd", "Notification", "PreCompact"):
        assert hooks.claude(event, source="startup").is_empty
    assert hooks.edit().is_empty
    assert hooks.ran("make").is_empty
    assert session.views.position == before


def test_two_agents_in_one_directory_are_told_apart(hooks):
    """With the same vendor twice in one directory, each call counts for the agent of its conversation."""
    session = hooks.records().create("fix-403", agent="one")
    session.agents.locate("claude", CONVERSATION)
    other = hooks.records().get("fix-403", agent="two")
    other.agents.locate("claude", "bbbbbbbb-0000-4000-8000-0000000000ad")
    other.attempts.start("pytest")
    about = {"tool_name": "Bash", "tool_input": {"command": "ls"}}
    assert hooks.claude("PreToolUse", **about).is_empty
    refused = hooks.claude("PreToolUse", session_id="bbbbbbbb-0000-4000-8000-0000000000ad", **about)
    assert "attempt 1 (pytest)" in refused.refusal
    assert "attempt 1 of two (pytest)" in hooks.edit().refusal, "edits of both are refused"


def test_the_worktree_of_an_agent_is_where_its_hook_runs(hooks):
    """Edits, also through a shell, are refused where an attempt runs; an attempt of another worktree does not count."""
    session = hooks.records().create("fix-403", agent="one")
    session.agents.locate("claude", CONVERSATION)
    here = worktree_named(str(hooks.project))
    elsewhere: Worktree = {**here, "root": f"{here['root']}-2", "git": True}
    other = hooks.records().get("fix-403", agent="two")
    other.attempts.start("pytest", worktree=elsewhere)
    assert hooks.edit().is_empty
    hooks.records().get("fix-403", agent="three").attempts.start("make", worktree=here)
    assert "attempt 2 of three (make)" in hooks.edit(call="toolu_9").refusal
    for command, refused in (("sed -i s/a/b/ a.py", True), ("sed -n p a.py", False)):
        said = hooks.claude("PreToolUse", tool_name="Bash", tool_input={"command": command}, tool_use_id=command)
        assert bool(said.is_empty) is not refused


def test_the_environment_names_session_and_agent(hooks):
    """The environment names a session by id or name; without an agent name, the conversation's or the vendor's counts."""
    session = hooks.records().create("fix-403", agent="human", objective="Fix it")
    for named in ("fix-403", session.id):
        assert hooks.claude("SessionStart", {"ONRECORD_SESSION": named, "ONRECORD_AGENT": "solver"}, source="startup")
    assert list(session.views.roster.agents) == ["solver"]
    env = {"ONRECORD_SESSION": session.id}
    hooks.claude("SessionStart", env, session_id="bbbbbbbb-0000-4000-8000-0000000000ad", source="startup")
    assert list(session.views.roster.agents) == ["solver", "claude"]
    assert hooks.edit(env={"ONRECORD_SESSION": "no-such-session", "ONRECORD_AGENT": "x"}).is_empty


@pytest.mark.parametrize("how", ["environment", "settings"])
def test_registering_by_itself(hooks, how, tmp_path):
    """Where the user wants it, the first prompt opens a session; the start before it says so and leaves nothing."""
    env = {"ONRECORD_AUTO": "1"}
    if how == "settings":
        config = tmp_path / "config.toml"
        config.write_text("auto_register = true\n")
        env = {"ONRECORD_CONFIG": str(config)}
    assert "onrecord setup --no-auto" in hooks.claude("SessionStart", env, source="startup").out
    assert not hooks.store.exists()
    assert hooks.claude("UserPromptSubmit", env, prompt="Fix the login").context
    with hooks.records() as records:
        (head,) = records.sessions()
        assert head.name.startswith("fix-the-login-20")
        assert list(records.get(head.session).views.roster.agents) == ["claude"]


def test_a_glance_by_conversation_decides_like_the_whole_way(hooks, session):
    """With and without a snapshot: the same agent, the same verdict; an unknown conversation stays unknown."""
    place = str(hooks.store)
    request = ToolRequest("solver", "edit", paths=["a.py"])
    for round_ in range(2):
        seen = glance_linked(place, LINK)
        assert seen is not None
        assert (seen.session, seen.agent) == (session.id, "solver")
        assert seen.present is not None
        for present in (seen.present, Present.of(session.views)):
            assert decide(request, present, 0, machine.is_gone).decision == "allow"
        session.attempts.start("pytest")
        seen = glance_linked(place, LINK)
        assert seen is not None
        assert seen.present is not None
        verdicts = [
            decide(request, one, 0, machine.is_gone).as_data() for one in (seen.present, Present.of(session.views))
        ]
        assert verdicts[0] == verdicts[1]
        assert verdicts[0]["decision"] == "deny"
        session.attempts.settle(None, "succeeded")
        for number in range(0 if round_ else SNAPSHOT_EVERY):
            session.decide(f"decision {number}")
    nobody = glance_linked(place, link_id("claude", "nobody"))
    assert nobody is not None
    assert (nobody.session, nobody.present) == ("", None)
    missing = glance_linked(str(hooks.place / "missing.db"), LINK)
    assert missing is not None
    assert missing.session == ""
    assert glance_linked("memory:", LINK) is None


def test_a_live_session_comes_before_one_that_ended(hooks, session):
    """A conversation that is on record in two sessions belongs to the live one."""
    with onrecord.connect(str(hooks.store), project="/elsewhere") as records:
        later = records.create("later", agent="other")
        later.agents.locate("claude", CONVERSATION)
        seen = glance_linked(str(hooks.store), LINK)
        assert seen is not None
        assert seen.agent == "other"
        later.close("done")
        seen = glance_linked(str(hooks.store), LINK)
        assert seen is not None
        assert seen.agent == "solver"
        session.attempts.start("pytest")
        assert "attempt 1" in hooks.edit().refusal


def test_a_shell_between_agent_and_hook_is_not_the_agent(hooks, session):
    """Vendors run hooks through a shell; the recorded process is the agent's, which outlives the hook."""
    sent = {"session_id": CONVERSATION, "cwd": str(hooks.project), "source": "startup"}
    command = shlex.join([sys.executable, "-P", "-m", "onrecord", "hook", "codex", "SessionStart"])
    env = hooks.environment | {"ONRECORD_SESSION": "fix-403", "ONRECORD_AGENT": "coder"}
    nested = f"sh -c {shlex.quote(command + '; true')}; true"
    subprocess.run(["sh", "-c", nested], input=json.dumps(sent), text=True, env=env, cwd=hooks.project, check=True)
    (link,) = hooks.session().views.roster.agents["coder"]["links"]
    assert link["last"]["process"] == machine.identity_of(os.getpid())


@pytest.mark.parametrize("name", VENDORS)
def test_a_plain_yes_loads_next_to_nothing(hooks, name):
    """A tool call does not load the modules that would cost more than the decision."""
    of = vendor(name)
    event, payload = of.sample_hook("00000000-0000-4000-8000-000000000000")
    made = hooks.records().create("fix-403", agent="solver")
    made.agents.locate(name, of.parse_hook({"hook_event_name": event} | payload, {}).vendor_id)
    look = (
        "import sys; from onrecord.surfaces.hook.process import Pending, answer; pending = Pending(); "
        f"answer([{name!r}, {event!r}], pending); assert pending.call.tool and not pending.reply.stdout; "
        "print(*sorted(set(sys.modules) & {'typing', 'pathlib', 'subprocess', 'hashlib', 'threading', 'datetime', "
        "'onrecord.session.handle', 'onrecord.vendors.port', 'onrecord.surfaces.cli.catalogue'}))"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", look], input=json.dumps(payload), env=hooks.environment, cwd=hooks.project,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == []
    assert hooks.trouble() == ""
