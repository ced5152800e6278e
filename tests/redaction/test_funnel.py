"""Everything on its way into a log passes one funnel: whichever verb records it, no secret reaches the store."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import onrecord
from onrecord import machine
from onrecord.errors import InvalidInput, SecretFound
from onrecord.redaction.known import known_values, variables_of
from onrecord.session.funnel import FOUND_KIND, Rules, configure
from onrecord.session.redacting import leaks, shared
from onrecord.session.single import record_tool
from onrecord.testing import FakeClock

TOKEN = "ghp_" + "a1B2c3" * 6
OTHER = "AKIA" + "ABCD2345EFGH6723"


@pytest.fixture
def records(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ONRECORD_CONFIG", str(tmp_path / "config.toml"))
    with onrecord.connect(str(tmp_path / "record.db"), project="work") as found:
        yield found


def found(session) -> list[dict[str, Any]]:
    return [event.data for event in session.events(kinds=(FOUND_KIND,))]


def files(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.glob("record.db*"))


def fill(records):
    """A session with a secret in everything that verbs take."""
    session = records.open("leaky", objective=f"use {TOKEN}", metadata={"env": {"TOKEN": TOKEN}})
    session.record_turn(
        [
            {"role": "user", "content": f"my key: {TOKEN}"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "c1", "name": "run", "arguments": {"x": TOKEN}}],
            },
            {"role": "tool", "call": "c1", "content": f"\x1b[32m{TOKEN}\x1b[0m"},
        ]
    )
    with session.turn() as turn:
        turn.user(TOKEN)
        turn.add({"role": "user", "content": [{"type": "text", "text": f"see {TOKEN}"}]})
        turn.add({"role": "tool", "tool_call_id": "c1", "content": json.dumps({"t": TOKEN})}, format="openai")
    session.decide(f"we use {TOKEN}", why=TOKEN)
    session.once("charge", lambda: {"token": TOKEN})
    session.facts.set_next_action(f"curl -H 'Authorization: Bearer {TOKEN}'")
    session.facts.set_scratch("key", TOKEN)
    session.evidence.record("note", text=TOKEN)
    session.log.record("payload.kept", {"entry": TOKEN})
    session.log.record("partner.entry", {"deep": [{"er": TOKEN}]})
    started = session.attempts.start(["deploy", "--token", TOKEN])
    session.attempts.settle(None, "failed", error=f"bad token {TOKEN}")
    assert started.data["token"]
    session.agents.record_tool("Bash", "run", call="t1", command=f"export T={TOKEN}")
    record_tool(records.store, session.id, "main", "Bash", "run", call="t2", at=1, command=f"export T={TOKEN}")
    session.pause(f"until {TOKEN} works")
    return session


def test_no_verb_carries_a_secret_into_the_store(records, tmp_path):
    """Whatever verb records it, the value is in no event, no note, no search, no snapshot and no byte of the files."""
    session = fill(records)
    events = list(session.events())
    assert len(events) > 20
    assert TOKEN not in json.dumps([event.data for event in events])
    assert TOKEN not in session.note()
    assert records.search("a1B2c3" * 6) == []
    records.store.close()
    assert TOKEN.encode() not in files(tmp_path)
    with sqlite3.connect(tmp_path / "record.db") as database:
        assert database.execute("SELECT count(*) FROM events WHERE kind = 'secret.found'").fetchone()[0] > 10


def test_untouched_text_would_be_found(records, tmp_path):
    """The control: what is no secret is in the store word for word, where the test above looks."""
    records.open("plain").decide("nothing to hide here")
    records.store.close()
    assert b"nothing to hide here" in files(tmp_path)


def test_what_was_found_is_an_event(records):
    """The event names rule, place, count, policy and the event it speaks of, and not the value."""
    session = records.open("work")
    session.record_turn([{"role": "user", "content": f"{TOKEN} and {TOKEN}"}, {"role": "assistant", "content": OTHER}])
    (about,) = found(session)
    assert about["found"] == [
        {"rule": "aws-access-key", "place": "items[1].content", "count": 1},
        {"rule": "github-token", "place": "items[0].content", "count": 2},
    ]
    assert (about["policy"], about["kind"]) == ("redact", "turn.recorded")
    assert session.log.find(about["event"]) is not None
    assert session.verify().ok


def test_the_reason_of_an_erasure_is_clean(records):
    """Who erases a secret may name it in the reason; the record does not keep it."""
    session = records.open("work")
    position = session.decide("about to go").position
    event = session.log.erase(f"it had {TOKEN}", positions=[position])
    assert event.data["reason"].startswith("it had [secret:github-token:")


def test_one_secret_has_one_mark_in_a_store(records):
    """A mark distinguishes one secret from another, across sessions of a store."""
    first = records.open("one").decide(f"key {TOKEN}").data["text"]
    second = records.open("two").decide(f"key {TOKEN}").data["text"]
    other = records.open("three").decide(f"key ghp_{'z9Y8x7' * 6}").data["text"]
    assert first == second != other


def test_a_retry_is_still_the_same_event(records):
    """Cleaning does not depend on the try: the same id with the same words returns the first position."""
    session = records.open("work")
    first = session.record_turn([{"role": "user", "content": TOKEN}], id="t1")
    again = session.record_turn([{"role": "user", "content": TOKEN}], id="t1")
    assert (again.position, len(found(session))) == (first.position, 1)


def test_refuse_records_nothing(records):
    """Under `refuse` the caller gets an error that names the rule and the place, and nothing is recorded."""
    configure(records.store, lambda: Rules("refuse"))
    session = records.open("work")
    before = session.log.head().position
    with pytest.raises(SecretFound) as refused:
        session.decide(f"use {TOKEN}")
    assert "github-token in text" in refused.value.message
    assert TOKEN not in refused.value.message
    assert session.log.head().position == before
    assert session.decide("use the staging key").position == before + 1


def test_keep_says_so(records):
    """Under `keep` the words stay, and the event says that they did."""
    configure(records.store, lambda: Rules("keep"))
    session = records.open("work")
    assert session.decide(f"use {TOKEN}").data["text"] == f"use {TOKEN}"
    assert found(session)[0]["policy"] == "keep"


def test_a_secret_that_is_a_name_is_replaced_too(records, tmp_path):
    """As a name in arguments, in a payload, in a partner's record: neither the store nor the event about it has it."""
    session = records.open("named")
    session.record_turn(
        [{"role": "assistant", "content": "", "tool_calls": [{"id": "c", "name": "f", "arguments": {TOKEN: {"a": 1}}}]}]
    )
    session.log.record("our.own", {TOKEN: 1, "deep": [{OTHER: {TOKEN: "x"}}]})
    session.log.record("payload.kept", {"lines": [json.dumps({"a": {TOKEN: 1, "b": [OTHER]}})]})
    records.close()
    assert not {secret for secret in (TOKEN, OTHER) if secret.encode() in files(tmp_path)}
    with onrecord.connect(str(tmp_path / "record.db"), project="work") as again:
        session = again.get("named")
        assert session.verify().ok
        kept = json.loads(next(iter(session.events(kinds=("payload.kept",)))).data["lines"][0])
        assert [name.partition(":")[0] for name in kept["a"]] == ["[secret", "b"]
        assert len(found(session)) == 3


def test_a_team_stays_as_it_is_and_its_secrets_are_named(records):
    """Its commands must run again; what was found is an event, a report leaves it out, and `refuse` refuses it."""
    member = {"id": "lead", "command": ["sh", "-c", f"curl -H 'Authorization: Bearer {TOKEN}' x"], "environment": {}}
    team = {"team": {"name": "crew", "root": "/", "agents": [member], "groups": [], "variables": {}}}
    session = records.open("work")
    session.log.append(session.log.draft("team.formed", team))
    (kept,) = session.events(kinds=("team.formed",))
    assert kept.data == team
    assert [(one["policy"], one["kind"]) for one in found(session)] == [("keep", "team.formed")]
    given = shared(session, [kept])
    assert TOKEN not in json.dumps(given.events[0].data)
    assert [leak.kind for leak in leaks(session)] == ["team.formed"]
    configure(records.store, lambda: Rules("refuse"))
    with pytest.raises(SecretFound):
        records.get("work").log.append(session.log.draft("team.formed", team))


def test_a_policy_belongs_to_a_project(records):
    """The nearest directory decides; other projects keep the default."""
    rules = Rules("redact", {"/made": "refuse", "/made/lab": "keep"})
    assert [rules.policy_of(name) for name in ("/made", "/made/lab/x", "/mades", "")] == [
        "refuse", "keep", "redact", "redact",
    ]  # fmt: skip


def test_settings_decide(records, tmp_path):
    """Own rules, the allow list, personal data and the policy come from the settings file."""
    (tmp_path / "config.toml").write_text(
        f"""
        [secrets]
        allow = ["{OTHER}"]
        personal = true
        [[secrets.rules]]
        kind = "badge"
        pattern = "badge-(?P<secret>[0-9]{{6}})"
        keywords = ["badge-"]
        """
    )
    said = records.open("work").decide(f"badge-123456 {OTHER} a.b@example.org 4111 1111 1111 1111 {TOKEN}").data["text"]
    kinds = [word.split(":")[1] for word in said.split() if "[secret:" in word]
    assert kinds == ["badge", "mail-address", "card-number", "github-token"]
    assert OTHER in said
    assert "badge-[secret" in said


OWN = """
[[secrets.rules]]
kind = "badge"
pattern = "badge-(?P<secret>[0-9]{6})"
keywords = ["badge-"]
[[secrets.rules]]
kind = "house-key"
pattern = "[A-Z]{3}#[0-9]{4}"
"""


@pytest.mark.parametrize("rules", [OWN, ""], ids=["own rules", "the control: none"])
def test_a_persons_own_rules_hold_for_every_verb(tmp_path, monkeypatch, capsys, rules):
    """What only `[[secrets.rules]]` in TOML names is in no event, note, search, export or byte; without rules, the control, it is."""
    from onrecord.surfaces.cli.main import main

    for name, value in {"HOME": "home", "ONRECORD_CONFIG": "config.toml", "ONRECORD_STORE": "record.db"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").write_text(rules)
    words = "badge-654321 opens it, with ABC#1234"
    for command in (
        ["open", "work", "--objective", words], ["decide", words], ["record", "--user", words], ["run", "--", "echo", words],
    ):  # fmt: skip
        assert main(command) == 0
    capsys.readouterr()
    for command in (["log", "work", "--json"], ["note", "work"], ["search", "badge", "--json"],
                    ["export", "work", "--format", "jsonl"], ["export", "work", "--format", "html"]):  # fmt: skip
        assert main(command) == 0
        said = capsys.readouterr().out
        assert ("654321" in said, "ABC#1234" in said) == (not rules, not rules), (command, said)
        assert ("[secret:badge:" in said and "[secret:house-key:" in said) is bool(rules)
    kept = files(tmp_path)
    assert (b"654321" in kept, b"ABC#1234" in kept) == (not rules, not rules)


@pytest.mark.parametrize(
    "wrong",
    ["policy = 'never'", "unknown = 1", "rules = [{kind = 'x'}]", "rules = [{kind='x', pattern='('}]", "allow = [1]"],
)
def test_wrong_settings_are_named(records, tmp_path, wrong):
    """A mistake in the settings is an error before anything is recorded, not a silent default."""
    (tmp_path / "config.toml").write_text(f"[secrets]\n{wrong}\n")
    with pytest.raises(InvalidInput):
        records.open("work").decide("something")


def test_values_that_the_host_knows(records, tmp_path, monkeypatch):
    """A value of the environment or of .env is found wherever it turns up, also when it looks like nothing."""
    monkeypatch.setenv("SERVICE_PASSWORD", "blue-horse-42")
    (tmp_path / ".env").write_text("export API_TOKEN='quiet river 7'\nNAME=ordinary-name-1\n")
    said = records.open("work").decide("it says blue-horse-42, quiet river 7, ordinary-name-1").data["text"]
    assert "environment-value" in said
    assert "dotenv-value" in said
    assert "ordinary-name-1" in said
    assert "horse" not in said
    assert "river" not in said


def test_common_words_are_never_known_values():
    """A variable that says `password` or a path does not make every such word a secret."""
    variables = {
        "DB_PASSWORD": "postgres",
        "A_TOKEN": "true",
        "SSH_AUTH_SOCK": "/run/user/1/agent",
        "X_KEY": "abcdefghi",
    }
    assert known_values(variables, "environment") == {}
    assert variables_of("A=\"x y\"\n# B=1\nexport C='3'\nD=4 # four\n") == {"A": "x y", "C": "3", "D": "4"}


def test_a_hook_loads_no_automaton(tmp_path):
    """A process that records one event finds secrets without loading the library for long texts."""
    import subprocess
    import sys

    code = (
        "import sys, onrecord; session = onrecord.connect('memory:', project='p').open('a');"
        f"print(session.decide('{TOKEN}').data['text'], 'ahocorasick_rs' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout.startswith("[secret:github-token:")
    assert done.stdout.endswith("False\n")


def test_the_funnel_does_not_keep_a_store_alive():
    """A store without users is collected, with its rules."""
    import gc
    import weakref

    from onrecord.stores.memory import MemoryStore

    store = MemoryStore(clock=FakeClock())
    configure(store, Rules)
    weak = weakref.ref(store)
    assert machine.identity()
    del store
    gc.collect()
    assert weak() is None
