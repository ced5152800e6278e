"""The team file: what it may contain, and how each mistake is reported."""

import pytest

from onrecord.crew.team_file import MEMBERS_LIMIT, Team, filled, read_team
from onrecord.errors import InvalidInput

WHOLE = """
[team]
name = "invite-403"

[variables]
ticket = "INV-403"

[[agent]]
id = "lead"
command = "claude --model 'opus 4'"
prompt_file = "lead.md"
environment = { LEVEL = "high" }
restart = "fresh"

[[group]]
id = "worker"
command = "codex"
prompt = "You are {{ agent }} for {{ticket}}."
worktree = true
headless = true
"""


@pytest.fixture
def team_of(tmp_path):
    def read(text: str) -> Team:
        (tmp_path / "lead.md").write_text("Lead {{ team }} of {{ session }} on {{ ticket }}.")
        path = tmp_path / "team.toml"
        path.write_text(text)
        return read_team(path)

    return read


def test_a_whole_file_is_read(team_of, tmp_path):
    """Commands are split as a shell does it, prompts come from their files, groups are numbered from 1."""
    team = team_of(WHOLE)
    lead, worker = team.members()
    assert (team.name, team.runtime, team.root) == ("invite-403", "runtime", str(tmp_path))
    assert (lead.id, lead.command, lead.restart) == ("lead", ["claude", "--model", "opus 4"], "fresh")
    assert lead.environment == {"LEVEL": "high"}
    assert (worker.id, worker.group, worker.worktree, worker.headless) == ("worker-1", "worker", True, True)
    known = {"agent": "worker-1", "session": "s", "project": "p", "team": "t", "directory": "d"} | team.variables
    assert filled(worker.prompt, known) == "You are worker-1 for INV-403."
    assert filled(lead.prompt, known) == "Lead t of s on INV-403."


def test_a_team_is_data_and_back(team_of):
    """The record keeps the whole team, so that it can be resumed without its file."""
    team = team_of(WHOLE)
    assert Team.from_data(team.as_data()) == team
    assert [member.id for member in team.scaled("worker", 3).members()][1:] == ["worker-1", "worker-2", "worker-3"]
    assert team.scaled("worker", 3).members()[1] == team.members()[1], "growing changes nobody who is there"


def test_a_value_is_not_looked_at_again():
    """A variable with a value that looks like a variable stays as it is."""
    assert filled("{{ a }}", {"a": "{{ b }}", "b": "no"}) == "{{ b }}"


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ('[[agent]]\nid = "a"\ncomand = "claude"', "'comand' is unknown", "did you mean command?"),
        ('[teem]\nname = "a"', "'teem' is unknown", "did you mean team?"),
        ('[[agent]]\nid = "a"', "needs an id and a command", ""),
        ('[agent]\nid = "a"', "double brackets", ""),
        ('[[agent]]\nid = 3\ncommand = "claude"', "id has the wrong type", ""),
        ('[[group]]\nid = "a"\ncommand = "claude"\ncount = true', "count has the wrong type", ""),
        ('[[group]]\nid = "a"\ncommand = "claude"\ncount = -1', "count must be 0 to", ""),
        (f'[[group]]\nid = "a"\ncommand = "claude"\ncount = {MEMBERS_LIMIT + 1}', "count must be 0 to", ""),
        ('[[agent]]\nid = "a"\ncommand = "claude \'"', "the command cannot be read", ""),
        ('[[agent]]\nid = "a"\ncommand = " "', "the command is empty", ""),
        ('[[agent]]\nid = "a"\ncommand = "claude"\nrestart = "often"', "restart must be one of", ""),
        ('[[agent]]\nid = "a"\ncommand = "claude"\nprompt = "{{ who }}"', "'who' that is not set", "[variables]"),
        ('[[agent]]\nid = "a"\ncommand = "claude"\nprompt_file = "none.md"', "cannot be read as text", ""),
        ('[[agent]]\nid = "a"\ncommand = "claude"\nenvironment = { "A=B" = "c" }', "environment must map names to text", ""),
        ('[[agent]]\nid = "a"\ncommand = "claude"\nworktree = true\ndirectory = "x"', "not both", ""),
        ('[[agent]]\nid = "crew"\ncommand = "claude"', "is reserved for the team", ""),
        ('[[agent]]\nid = "w-1"\ncommand = "claude"\n[[group]]\nid = "w"\ncommand = "claude"', "named 'w-1'", ""),
        ("", "no agents", ""),
        ("[[agent", "it must be a TOML file", ""),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_where_it_is(team_of, text, said, hint):
    """Every mistake is reported with its place in the file; a misspelt key with the nearest known one."""
    with pytest.raises(InvalidInput) as refusal:
        team_of(text)
    told = f"{refusal.value.message} {refusal.value.hint}"
    assert said in told
    assert hint in told
