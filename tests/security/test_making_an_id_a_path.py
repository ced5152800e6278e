"""An attacker wants an id or a name of theirs to become a path: of a conversation, a team, a session or a tenant."""

import json
import sys
from types import SimpleNamespace

import pytest

import onrecord
from onrecord.agents.mirroring import location_of
from onrecord.connection import load_profile
from onrecord.crew.team_view import TeamView
from onrecord.errors import InvalidInput, InvalidName, NotFound, SessionNotFound
from onrecord.rollout.recording import open_rollout, read_lane, record_reward
from onrecord.session import bundle
from onrecord.stores.postgres.address import address_of
from onrecord.surfaces.hook.process import _act
from onrecord.vendors.hooks import START, HookCall
from onrecord.vendors.known import VENDORS, load
from onrecord.vendors.transcripts import Location
from onrecord.views import state_md
from tests.security.test_running_commands import hostile

PATHS = ["../../x", "a/../../x", "/etc/passwd", "..", ".ssh", "-rf", "a\\b", "*", "a\nb", "a\0b", ""]
ID = {"opencode": "ses_0123456789"}
UUID = "aaaaaaaa-0000-4000-8000-0000000000ad"


@pytest.mark.parametrize("name", VENDORS)
def test_a_vendor_takes_only_its_own_ids(tmp_path, name):
    """What is no id of the vendor is not found, not written and not passed on; the control has the vendor's form."""
    of, env = load(name), {"HOME": str(tmp_path)}
    for one in [*PATHS, f"{UUID}\n", f"{UUID}/x", f"ses_1/{UUID}"]:
        assert not of.is_id(one), one
        assert of.find(one, env) is None
        assert list(of.holders(Location(one, "", "", ""), env)) == []
        with pytest.raises(InvalidInput):
            of.put_back(Location(one, "", "", ""), iter(()), env, str(tmp_path))
    assert of.is_id(ID.get(name, UUID))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("one", PATHS)
def test_locate_refuses_what_could_be_a_path(one):
    """`locate` records no id with a separator, a leading dot or dash, or a pattern; the control is recorded."""
    with onrecord.connect("memory:", project="/p") as records:
        session = records.create("fix", agent="claude")
        with pytest.raises(InvalidInput):
            session.agents.locate("claude", one)
        assert session.agents.locate("claude", UUID) is not None


@pytest.mark.parametrize("one", ["x", "../../x", UUID + "/x"])
def test_a_hook_with_a_foreign_id_reaches_no_record(one, monkeypatch):
    """A hook whose id is not of its vendor's form is answered without looking at the record; the control looks."""
    asked = []
    moments = SimpleNamespace(MOMENTS={START: lambda _vendor, call: asked.append(call.vendor_id)})
    monkeypatch.setitem(sys.modules, "onrecord.surfaces.hook.moments", moments)
    for id_ in (one, UUID):
        _act(None, load("claude"), HookCall("claude", START, id_))  # type: ignore[arg-type]  # not used at this moment
    assert asked == [UUID]


@pytest.mark.parametrize("id_", ["user", "e", "", "../secret"])
def test_a_recorded_path_with_a_foreign_id_is_not_read(tmp_path, id_):
    """A bundle that names another transcript, under an id that every transcript contains, gets nothing of it."""
    secret = tmp_path / "secret.jsonl"
    secret.write_text(json.dumps({"type": "user", "sessionId": UUID, "message": {"content": "the user said hunter2"}}))

    def found(of: str) -> Location | None:
        link = {"vendor": "claude", "id": of, "agent": "claude", "first": {"transcript": str(secret)}, "last": {}}
        return location_of(link, {"HOME": str(tmp_path)})  # type: ignore[arg-type]  # as an old log may have it

    assert found(id_) is None
    assert found(UUID) is not None, "the control: the file has this id"


@pytest.mark.parametrize("one", [name for name in PATHS if name])
def test_names_in_bundles_teams_and_tenants_are_checked(elsewhere, one):
    """A name that is no name is refused for sessions, tenants and agents, also where a record brings it."""
    with pytest.raises(InvalidName):
        elsewhere.create(one)
    lines = list(bundle.lines_of(elsewhere.create("gift")))
    with onrecord.connect("memory:", project="/p") as here:
        with pytest.raises(InvalidName):
            bundle.take_in(here, lines, name=one)
        assert bundle.take_in(here, lines, name="gift").name == "gift"
    with pytest.raises(InvalidName):
        address_of("postgresql://localhost/x", one)
    for id_, expected in ((one, False), ("lead", True)):
        data = hostile(["true"])
        data["team"]["agents"][0]["id"] = id_  # type: ignore[index]  # it is a dict
        view = TeamView()
        view.apply(SimpleNamespace(kind="team.formed", data=data, position=1))  # type: ignore[arg-type]  # what is read
        assert (view.team is not None) is expected


@pytest.mark.parametrize("one", [name for name in PATHS if name])
def test_a_rollout_has_a_name_and_never_a_path(one):
    """The id of a rollout that a client of the proxy sends is a session's name: what is none is refused, and made nowhere."""
    with onrecord.connect("memory:", project="/p") as records:
        with pytest.raises(InvalidName):
            open_rollout(records, one)
        with pytest.raises(SessionNotFound):
            open_rollout(records, one, create=False)
        assert records.sessions() == []
        rollout = open_rollout(records, "task-17")
        assert rollout.session.name == "task-17"
        with pytest.raises(InvalidName):
            record_reward(rollout.session, read_lane(rollout.session), 1.0, name=one)


@pytest.mark.parametrize(
    "one", ["../../secret", "/etc/passwd", "..", "a\\b", "*", "a\0b", "a\nb", "../profiles/bugfix"]
)
def test_a_profile_by_name_is_one_that_is_listed(tmp_path, monkeypatch, one):
    """A name of a profile is looked up among the files that are there; a path is read as a profile, and only as one."""
    monkeypatch.setenv("ONRECORD_CONFIG", str(tmp_path / "config" / "config.toml"))
    (tmp_path / "secret.toml").write_text("password = 'hunter2'")
    with pytest.raises((NotFound, InvalidInput)) as refusal:
        load_profile(one)
    assert "hunter2" not in str(refusal.value)
    with pytest.raises(InvalidInput) as refusal:
        load_profile(str(tmp_path / "secret.toml"))
    assert "hunter2" not in str(refusal.value)
    assert load_profile("bugfix")["name"] == "bugfix"


@pytest.mark.parametrize("one", PATHS)
def test_a_recorded_profile_becomes_no_file(elsewhere, tmp_path, one):
    """Names of phases and sections in a record are text: whatever they are, nothing is written under them."""
    session = elsewhere.create("gift")
    session._record(
        "profile.chosen", {"profile": {"name": one, "phases": [{"name": one}], "sections": [{"name": one}]}}
    )
    with onrecord.connect(f"sqlite:///{tmp_path}/here/x.db", project=str(tmp_path)) as here:
        taken = bundle.take_in(here, list(bundle.lines_of(session)), name="gift")
        before = sorted(path for path in tmp_path.rglob("*") if "x.db" not in path.name)
        assert taken.note()
        assert state_md.render(taken.views)
        assert sorted(path for path in tmp_path.rglob("*") if "x.db" not in path.name) == before
