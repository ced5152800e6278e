import json
import shutil
from pathlib import Path

import pytest

from onrecord.agents.fencing import fence
from onrecord.errors import InvalidInput
from onrecord.testing import VendorContract
from onrecord.vendors.hooks import AFTER_TOOL, OTHER, PROMPT, HookAnswer
from onrecord.vendors.port import FINISHED, REFUSED, LaunchOptions, vendor
from tests.vendors.homes import at, copied, lines, recorded

GEMINI = vendor("gemini")
LONG = "33333333-aaaa-4333-8444-555555555555"
HOOKED = "66666666-aaaa-4333-8444-555555555555"
GLUED = "7777777c-aaaa-4333-8444-555555555555"


class TestGemini(VendorContract):
    name = "gemini"
    conversation = LONG
    says = ("<session_context>", "one", "MOCK-REPLY turn=2", "two (later minute)", "MOCK-REPLY turn=3", "three")
    stream = lines("gemini")
    stream_id = "7777777a-aaaa-4333-8444-555555555555"

    def make_home(self, folder):
        copied("gemini", folder / ".gemini")
        return {"HOME": str(folder)}

    def payloads(self):
        return recorded("gemini")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return copied("gemini", tmp_path / ".gemini")


@pytest.fixture
def env(home: Path) -> dict[str, str]:
    return {"HOME": "/nowhere", "GEMINI_CLI_HOME": str(home.parent)}


def test_real_file_names_are_found(env):
    """A name has eight letters of the id only; the head inside decides, and the stub is not the conversation (T03)."""
    place = at(GEMINI, LONG, env)
    assert place.path.endswith("tmp/p3/chats/session-2026-11-15T06-44-33333333.jsonl")
    assert place.cwd == "/home/dev/gemini/p3"
    assert GEMINI.find("33333333-bbbb-4333-8444-555555555555", env) is None
    assert {one.vendor_id for one in GEMINI.locations(env)} == {LONG, HOOKED, GLUED}


def test_repeated_and_patched_messages_are_said_once(env):
    """A message that was written twice counts once, with its calls; a patch that drops turns removes nothing."""
    items = [item for _, item in GEMINI.items(GEMINI.read(at(GEMINI, HOOKED, env)).entries)]
    calls = [call["id"] for item in items for call in item.get("tool_calls", ())]
    assert len(calls) == len(set(calls)) == 2
    assert sum("<hook_context>" in str(item["content"]) for item in items) == 2, "turns Gemini left out are still there"
    assert [item["call"] for item in items if item["role"] == "tool"] == calls


def test_what_was_glued_is_still_read(env):
    """A record that follows half a line is found; the half line is counted."""
    chunk = GEMINI.read(at(GEMINI, GLUED, env))
    assert chunk.torn == 1
    assert [item["content"] for _, item in GEMINI.items(chunk.entries) if item["role"] == "user"][1:] == [
        "first C", "after trunc", "after trunc 2",
    ]  # fmt: skip


def test_retention_is_switched_off_before_a_resume(home, env):
    """Gemini may delete a resumed conversation, so its retention is a hazard; the fix keeps every other setting."""
    settings = home / "settings.json"
    settings.write_text('{"general": {"vimMode": true, "sessionRetention": {"maxAge": "7d"}}, "theme": "ä"}')
    place = at(GEMINI, LONG, env)
    hazard = next(one for one in GEMINI.hazards(place, env) if one.code == "retention")
    assert hazard.touches == (str(settings),)
    assert GEMINI.expires_at(place, env) == Path(place.path).stat().st_mtime + 7 * 86_400
    GEMINI.mend(hazard, place, env)
    assert json.loads(settings.read_text()) == {
        "general": {"vimMode": True, "sessionRetention": {"maxAge": "7d", "enabled": False}}, "theme": "ä",
    }  # fmt: skip
    assert "retention" not in [one.code for one in GEMINI.hazards(place, env)]
    assert GEMINI.expires_at(place, env) is None


def test_settings_with_comments_are_not_rewritten(home, env):
    """Settings that are not plain JSON are left to the user; nothing in them is lost."""
    settings = home / "settings.json"
    settings.write_text('// mine\n{"theme": "x"}')
    place = at(GEMINI, LONG, env)
    hazard = next(one for one in GEMINI.hazards(place, env) if one.code == "retention")
    with pytest.raises(InvalidInput, match="not plain JSON"):
        GEMINI.mend(hazard, place, env)
    assert settings.read_text() == '// mine\n{"theme": "x"}'


def test_the_stub_is_moved_aside(home, env):
    """The stub that makes Gemini delete the conversation is a hazard, and only the stub is touched."""
    place = at(GEMINI, LONG, env)
    before = Path(place.path).read_bytes()
    hazard = next(one for one in GEMINI.hazards(place, env) if one.code == "stub")
    assert [Path(one).name for one in hazard.touches] == ["session-2026-11-15T06-45-33333333.jsonl"]
    GEMINI.mend(hazard, place, env)
    assert Path(place.path).read_bytes() == before
    assert "stub" not in [one.code for one in GEMINI.hazards(place, env)]
    assert [one.name for one in Path(place.path).parent.glob("*.jsonl")] == [Path(place.path).name]


def test_a_hazard_that_names_another_file_moves_nothing(home, env):
    """The fix touches only stubs of this conversation, whatever a hazard says."""
    place = at(GEMINI, LONG, env)
    hazard = next(one for one in GEMINI.hazards(place, env) if one.code == "stub")
    GEMINI.mend(hazard._replace(touches=(place.path,)), place, env)
    assert Path(place.path).exists()


def test_a_torn_tail_is_taken_off_and_kept(home, env):
    """Half a line is removed before a resume appends to it, and kept beside the file."""
    place = at(GEMINI, LONG, env)
    path = Path(place.path)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"id":"half')
    hazard = next(one for one in GEMINI.hazards(place, env) if one.code == "torn_tail")
    GEMINI.mend(hazard, place, env)
    assert path.read_bytes() == whole
    (kept,) = path.parent.glob("*.onrecord-torn-*")
    assert kept.read_bytes() == b'{"id":"half'


def test_turns_that_will_be_left_out_are_told(env):
    """Turns that begin with hook context are counted before a resume drops them."""
    told = {one.code: one for one in GEMINI.hazards(at(GEMINI, HOOKED, env), env)}
    assert "2 turns" in told["turns_left_out"].message
    assert not told["turns_left_out"].fatal


def test_the_brief_never_begins_a_turn():
    """Context at SessionStart would be put before the prompt and cost the turn; it goes out with the prompt (T23)."""
    assert GEMINI.context_moment == PROMPT
    start = GEMINI.parse_hook({"hook_event_name": "SessionStart", "source": "startup"}, {})
    assert GEMINI.reply(start, HookAnswer(context="brief")).stdout == ""
    prompt = GEMINI.parse_hook({"hook_event_name": "BeforeAgent", "prompt": "p"}, {})
    assert "brief" in GEMINI.reply(prompt, HookAnswer(context="brief")).stdout
    assert GEMINI.start(LaunchOptions("/", LONG, prompt="/help me")).warnings


def test_exit_codes_are_told_by_what_is_missing():
    """A failed command has an exit code, a successful one has none; PreCompress is not a compaction."""
    said = "<untrusted_context>\nOutput: hello\n{}Process Group PGID: 66\n</untrusted_context>"
    for code, line in ((3, "Exit Code: 3\n"), (0, ""), (None, "Signal: 9\n")):
        payload = {
            "hook_event_name": "AfterTool", "tool_name": "run_shell_command",
            "tool_response": {"llmContent": said.replace("{}", line), "returnDisplay": "hello"},
        }  # fmt: skip
        call = GEMINI.parse_hook(payload, {})
        assert (call.moment, call.exit_code) == (AFTER_TOOL, code)
    assert GEMINI.parse_hook({"hook_event_name": "PreCompress"}, {}).moment == OTHER


def test_it_does_not_start_itself_anew():
    """The child that Gemini would start survives a kill, so this is disabled."""
    for launch in (
        GEMINI.start(LaunchOptions("/", LONG)),
        GEMINI.resume(LaunchOptions("/", LONG, env={"HOME": "/nowhere"})),
    ):
        assert launch.env == {"GEMINI_CLI_NO_RELAUNCH": "true"}


def test_a_project_gets_a_free_folder(env, home, tmp_path):
    """A directory that shares its name with another gets a folder of its own, entered into the list (T02, T06)."""
    place = at(GEMINI, LONG, env)
    raws = [one.raw for one in GEMINI.read(place).entries]
    shutil.rmtree(home / "tmp" / "p3")
    twin = tmp_path / "else" / "hk"
    twin.mkdir(parents=True)
    put = GEMINI.put_back(place, iter(raws), env, str(twin))
    assert Path(put.path).parent.parent.name == "hk-1"
    listed = json.loads((home / "projects.json").read_text())["projects"]
    assert listed[str(twin)] == "hk-1"
    assert listed["/home/dev/gemini/hk"] == "hk"
    assert at(GEMINI, LONG, env).cwd == str(twin)


@pytest.mark.parametrize(
    ("command", "part"),
    [
        (["gemini"], "permissions"),
        (["gemini", "-p", "x"], "has no tools"),
        (["gemini", "-y", "-r", "latest"], "the wrong conversation"),
        (["gemini", "-y", "--resume=3"], "the wrong conversation"),
    ],
)
def test_doubtful_commands_are_named(command, part):
    """Without --yolo, or with an index or `latest` instead of an id, there is a warning (I27)."""
    assert any(part in said for said in GEMINI.warnings(command, {}))


def test_results_are_read():
    """The result record decides; a missing id is a refusal."""
    assert GEMINI.classify([json.dumps({"type": "result", "status": "success"})], 0).cause == FINISHED
    refused = GEMINI.classify(['Error resuming session: Invalid session identifier "x".'], 42)
    assert refused.cause == REFUSED


def test_a_start_is_mended_first(home, env):
    """A start with retention may delete what another one has just begun; the fix is the same as before a resume."""
    (hazard,) = GEMINI.start_hazards(env)
    GEMINI.mend(hazard, at(GEMINI, LONG, env), env)
    assert GEMINI.start_hazards(env) == []
    assert json.loads((home / "settings.json").read_text())["general"]["sessionRetention"]["enabled"] is False


def test_a_file_that_lost_its_head_is_found_and_mended(env, tmp_path):
    """After another start deleted its head, a file is known by its name; the head is written again, and when it is put back."""
    place = at(GEMINI, LONG, env)
    path = Path(place.path)
    head, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join(rest))
    found = at(GEMINI, LONG, env)
    assert found.path == place.path
    hazard = next(one for one in GEMINI.hazards(found, env) if one.code == "headless")
    assert (hazard.touches, hazard.fatal) == ((place.path,), True)
    new = env | {"GEMINI_CLI_HOME": str(tmp_path / "new")}
    put = GEMINI.put_back(found, iter(line.rstrip("\n") for line in rest), new, place.cwd)
    GEMINI.mend(hazard, found, env)
    for written in (path, Path(put.path)):
        first, *others = written.read_text().splitlines(keepends=True)
        assert {**json.loads(first), "startTime": "", "lastUpdated": ""} == {
            "sessionId": LONG, "projectHash": json.loads(head)["projectHash"], "startTime": "", "lastUpdated": "", "kind": "main",
        }  # fmt: skip
        assert others == rest
    assert "headless" not in [one.code for one in GEMINI.hazards(found, env)]


def test_injected_text_that_a_compaction_dropped_is_noticed(tmp_path):
    """No hook reports a compaction: the last list of all messages says whether the model still sees what was injected."""
    mark, file = "[onrecord-data nonce=", tmp_path / "session.jsonl"
    prompt = json.dumps({"type": "user", "content": [{"text": f"Go on. {mark}12]"}]})
    listed = '{"$set":{"messages":[{"id":"1","type":"user","content":[{"text":"%s"}]}]}}'
    file.write_text(f"{prompt}\n")
    assert GEMINI.keeps_context(str(file), mark), "no list at all: nothing was dropped"
    file.write_text(f"{prompt}\n{listed % f'Go on. {mark}12]'}\n")
    assert GEMINI.keeps_context(str(file), mark), "a resume repeats every message"
    file.write_text(f"{prompt}\n{listed % '<state_snapshot>'}\n")
    assert not GEMINI.keeps_context(str(file), mark)
    file.write_text(f"{listed % '<state_snapshot>'}\n{prompt}\n")
    assert GEMINI.keeps_context(str(file), mark), "it was injected again since"
    file.write_text("")
    assert GEMINI.keeps_context(str(file), mark), "an empty file says nothing"
    assert GEMINI.keeps_context(str(tmp_path / "gone.jsonl"), mark), "what cannot be read is no reason"


def test_what_our_hook_adds_is_not_what_a_person_said():
    """Gemini puts an element around what a hook adds; nothing of it, not even its end, is in the prompt."""
    added = f"<hook_context>You work in a session.\n{fence('the state of the work')}</hook_context>"
    record = {"id": "1", "type": "user", "content": [{"text": "Paint it"}, {"text": added}]}
    (one,) = GEMINI.said(GEMINI.parse(json.dumps(record)), record)
    assert [item["content"] for item in one.items] == ["Paint it"]
    joined = record | {"content": f"Paint it\n{added}"}
    (one,) = GEMINI.said(GEMINI.parse(json.dumps(joined)), joined)
    assert [item["content"] for item in one.items] == ["Paint it"]
