"""VendorContract: what every translator of a coding agent owes, as tests. A vendor is whatever passes it.

class TestClaude(VendorContract):
    name = "claude"
    conversation = "aaaaaaaa-0000-4000-8000-00000000000a"
    says = ("Remember the word",)

    def make_home(self, folder):  # a home with that conversation, as the real program left it
        ...
        return {"HOME": str(folder)}

    def payloads(self):  # what the real program sent to its hooks
        ...
"""

from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.errors import Conflict, InvalidInput
from onrecord.log.items import check_item
from onrecord.log.readings import BEGINS, condense, resolve
from onrecord.testing.tools import raises
from onrecord.vendors import hooks, port
from onrecord.vendors.hooks import HookAnswer, HookCall
from onrecord.vendors.port import LaunchOptions, Mark

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from onrecord.vendors.port import Chunk, Entry, Location, Vendor

HOSTILE_IDS = (
    "", ".", "..", "*", "?", "-rf", "--help", "../../etc/passwd", "a/b", "x\0y", "x\n", "[!x]*", "ses_*", "latest",
    "aaaaaaaa-0000-4000-8000-00000000000a/..", "aaaaaaaa-0000-4000-8000-00000000000a\n", "aaaaaaaa-*", "ä" * 40,
    "a" * 300,
)  # fmt: skip
HOSTILE_PROMPTS = ("-rf", "--resume", "two words", "quotes \" and ' and $HOME `id`", "line\nline", "ünï ✓", "{}", "")
HOSTILE_PAYLOADS: tuple[dict[str, Any], ...] = (
    {}, {"hook_event_name": 7}, {"session_id": ["x"], "tool_input": "not json {", "tool_name": None},
    {"tool_name": "Bash", "tool_input": {"command": 'echo "unclosed'}},
    {"tool_name": "Bash", "tool_input": {"command": 3}},
    {"tool_response": [1, {"stdout": None}], "tool_name": "Bash"}, {"workspace_roots": 5, "cwd": {}, "source": []},
    {"tool_input": {"file_path": ["a"], "path": 1}, "toolArgs": "[1]", "toolName": "edit"},
)  # fmt: skip
GUESSES = ("latest", "-c", "--continue", "--last", "-1")
"""Arguments that make a vendor choose a conversation itself."""


class VendorWorkbench:
    """What a subclass says about its vendor, and a home to test it in."""

    name: str
    conversation: str
    """The id of a conversation in the home; it has several records."""
    says: Sequence[str]
    """Texts that are said in it, in this order."""
    stream: Sequence[str] = ()
    """Lines of a JSON stream of the vendor's, if there are some."""
    stream_id: str = ""
    """The id in that stream."""
    puts_back = True
    is_file = True
    """Whether a conversation is a file of its own."""

    def make_home(self, folder: Path) -> dict[str, str]:
        """Build a home as the real program left it, and return the environment that leads there."""
        raise NotImplementedError

    def make_vendor(self) -> Vendor:
        """The vendor itself; a built-in one is found by its name."""
        return port.vendor(self.name)

    def empty_home(self, folder: Path) -> dict[str, str]:
        """A home in which the program was never used, ready to restore a conversation into."""
        folder.mkdir(parents=True, exist_ok=True)
        return {"HOME": str(folder)}

    def payloads(self) -> Iterable[tuple[str, dict[str, Any], Mapping[str, str]]]:
        """Hook payloads the real program sent: the event, the payload and the environment."""
        raise NotImplementedError

    def setup_method(self) -> None:
        """Make a home of its own for every test."""
        self._folder = tempfile.TemporaryDirectory()
        self.root = Path(self._folder.name)
        self.env = self.make_home(self.root / "home")
        self.vendor = self.make_vendor()

    def teardown_method(self) -> None:
        """Leave nothing behind."""
        self._folder.cleanup()

    def place(self) -> Location:
        """Where the conversation is."""
        found = self.vendor.find(self.conversation, self.env)
        assert found is not None, f"{self.conversation} is not found in the home of the test"
        return found

    def request(self, vendor_id: str | None, **about: Any) -> LaunchOptions:
        """The options of a run in the test's own directory."""
        return LaunchOptions(str(self.root), vendor_id, env=self.env, **about)

    def start_id(self) -> str | None:
        """An id a start may be given: a new one, where the vendor chooses none."""
        return self.conversation

    def in_steps(self, place: Location, limit: int) -> tuple[list[Entry], int]:
        """Read a conversation in small steps, the marks going through JSON as they do in a record."""
        entries: list[Entry] = []
        mark: Mark | None = None
        torn = 0
        while True:
            chunk: Chunk = self.vendor.read(place, mark, limit=limit)
            if not chunk.entries and not chunk.torn:
                return entries, torn
            entries += chunk.entries
            torn += chunk.torn
            mark = Mark(*json.loads(json.dumps(chunk.mark)))

    def tree(self, folder: Path) -> dict[str, tuple[bytes, int]]:
        """Every file below a folder: its bytes and when they changed."""
        return {
            str(path): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(folder.rglob("*"))
            if path.is_file() and not path.name.endswith(("-shm", "-wal"))
        }


class RunContract(VendorWorkbench):
    """What start, resume and the stream owe."""

    def test_it_is_known_by_its_name(self) -> None:
        """A vendor is found by our word for it and says plausible things about itself."""
        of, can = self.vendor, self.vendor.capabilities
        assert of.name == self.name
        assert of.title
        assert of.programs
        assert not (can.chooses_id and can.obtains_id)
        assert of.context_moment in (hooks.START, hooks.PROMPT)
        assert of.notice_moment in (hooks.START, hooks.STOP)
        assert can.context_at_start in ("launch", "first_prompt", "")
        assert can.context_bytes == of.context_bytes >= 2048
        assert of.interrupt_keys
        assert of.exit_keys
        for env in ({"HOME": "/h"}, {"HOME": "/h//x/"}, {"HOME": "/h"} | of.home_env("/other/./place")):
            assert of.home_path(env) == str(of.home(env))

    def test_the_prompt_arrives_whole(self) -> None:
        """Any prompt is passed word for word, over standard input or as one argument."""
        for headless in (False, True):
            for prompt in filter(None, HOSTILE_PROMPTS):
                wanted = self.request(self.start_id(), prompt=prompt, headless=headless)
                for launch in (self.vendor.start(wanted), self.vendor.resume(wanted)):
                    if launch.stdin == prompt:
                        continue
                    last = launch.argv[-1]
                    assert last == prompt or last.endswith(f"={prompt}"), (launch, prompt)
                    if last == prompt and prompt.startswith("-"):
                        assert "--" in launch.argv[:-1], launch

    def test_a_start_takes_our_id_where_it_can(self) -> None:
        """The arguments of a start contain the id where the vendor takes one; those of every resume contain it."""
        wanted = self.request(self.start_id(), name="a name", prompt="go", extra=("--some", "flag"))
        for headless in (False, True):
            asked = wanted._replace(headless=headless)
            assert any(str(wanted.vendor_id) in word for word in self.vendor.start(asked).argv)
            resumed = self.vendor.resume(asked)
            assert any(str(wanted.vendor_id) in word for word in resumed.argv)
            assert not set(GUESSES) & set(resumed.argv)
            assert "a name" not in resumed.argv, "names are never a key to resume by"
            assert resumed.argv[0] in self.vendor.programs
            index = resumed.argv.index("--some")
            assert resumed.argv[index : index + 2] == ["--some", "flag"]

    def test_another_program_may_be_named(self) -> None:
        """If the user names a program, it is the one that runs."""
        wanted = self.request(self.start_id(), prompt="go", program="/opt/a b/agent")
        assert self.vendor.start(wanted).argv[0] == self.vendor.resume(wanted).argv[0] == "/opt/a b/agent"

    def test_hostile_ids_become_no_argument_and_no_path(self) -> None:
        """A text that is not an id of the vendor is refused before it enters a command, a path or a pattern."""
        before = self.tree(self.root)
        for bad in HOSTILE_IDS:
            with raises(InvalidInput):
                self.vendor.resume(self.request(bad, prompt="go"))
            with raises(InvalidInput):
                self.vendor.start(self.request(bad, prompt="go"))
            assert self.vendor.find(bad, self.env) is None
            with raises(InvalidInput):
                self.vendor.put_back(port.Location(bad, "x", "x"), iter(["{}"]), self.env, str(self.root))
        assert self.tree(self.root) == before

    def test_an_id_is_read_from_its_stream(self) -> None:
        """The conversation's id is found in the JSON stream, and nowhere else."""
        found = [one for line in self.stream if (one := self.vendor.stream_id(line))]
        assert set(found) == ({self.stream_id} if self.stream else set())
        for line in ("", "plain text", "{", "[]", "null", '{"session_id": 7}', '{"session_id": "../x"}'):
            assert self.vendor.stream_id(line) is None

    def test_a_run_is_finished_only_when_it_says_so(self) -> None:
        """Status 0 without a stream is a clean end; a kill, an unknown status and a truncated stream are not."""
        classify = self.vendor.classify
        assert classify([], 0).cause == port.FINISHED
        assert classify([], None).cause == port.UNKNOWN
        assert classify([], 1).cause == port.CRASH
        assert {classify([], -9).cause, classify([], 137).cause, classify([], -15).cause} == {port.KILLED}
        assert {classify([], -2).cause, classify([], 130).cause} == {port.USER}
        assert {classify([], -11).cause, classify([], 134).cause} == {port.CRASH}
        assert classify(['{"type": "something.begun"}'], 0).cause != port.FINISHED

    def test_limits_are_told_apart(self) -> None:
        """What vendors print at a limit is classified, with the time it ends."""
        classify = self.vendor.classify
        window = classify(["Claude AI usage limit reached|1893456000"], 1)
        assert (window.cause, window.resets_at) == (port.USAGE_WINDOW, 1893456000.0)
        limited = classify(["API Error: 429 Too Many Requests, retry-after: 30"], 1)
        assert (limited.cause, limited.retry_after) == (port.RATE_LIMIT, 30.0)
        assert classify(["529 overloaded_error: Overloaded"], 1).cause == port.OVERLOAD
        assert classify(["prompt is too long: 210000 tokens > 200000 maximum"], 1).cause == port.TOKENS


class TranscriptContract(VendorWorkbench):
    """What finding, reading and restoring owe."""

    def test_a_conversation_is_found_by_its_id(self) -> None:
        """A conversation is found by its id only; every location has one conversation, and an empty home has none."""
        place = self.place()
        assert place.vendor_id == self.conversation
        assert Path(place.path).is_file()
        listed = [one.vendor_id for one in self.vendor.locations(self.env)]
        assert self.conversation in listed
        assert len(listed) == len(set(listed))
        empty = {"HOME": str(self.root / "empty")}
        assert self.vendor.find(self.conversation, empty) is None
        assert list(self.vendor.locations(empty)) == []

    def test_what_was_said_is_read(self) -> None:
        """Every record becomes an entry, kept word for word, and the conversation's words are among its items."""
        chunk = self.vendor.read(self.place())
        assert all(entry.known for entry in chunk.entries), [one.kind for one in chunk.entries if not one.known]
        said = self.vendor.items(chunk.entries)
        for number, item in said:
            check_item(item)
            assert 0 <= number < len(chunk.entries)
        text = "\n".join(str(item["content"]) for _number, item in said)
        position = -1
        for words in self.says:
            position = text.find(words, position + 1)
            assert position >= 0, f"{words!r} is not said, or not in its place: {text}"
        answers = [item["call"] for _number, item in said if item["role"] == "tool"]
        assert len(answers) == len(set(answers))

    def test_a_kept_record_is_read_again(self) -> None:
        """`parse` makes of a record's text alone what `read` made of the record."""
        for entry in self.vendor.read(self.place()).entries:
            assert self.vendor.parse(entry.raw) == entry

    def test_steps_add_up(self) -> None:
        """A conversation read in small steps, with marks that went through JSON, equals one read at once."""
        place = self.place()
        whole = self.vendor.read(place, limit=1 << 30)
        for limit in (1, 700, 5_000):
            entries, torn = self.in_steps(place, limit)
            assert [one.raw for one in entries] == [one.raw for one in whole.entries]
            assert torn == whole.torn
        assert self.vendor.read(place, whole.mark).entries == []

    def test_looking_changes_nothing(self) -> None:
        """Finding, reading and examining a conversation leaves every file as it is."""
        before = self.tree(self.root)
        place = self.place()
        list(self.vendor.locations(self.env))
        self.in_steps(place, 4_000)
        self.vendor.hazards(place, self.env)
        self.vendor.expires_at(place, self.env)
        self.vendor.resume(self.request(self.conversation, prompt="go"))
        assert self.tree(self.root) == before

    def test_a_replaced_file_is_noticed(self) -> None:
        """A mark from another file makes the read start again from the beginning, and the result says so."""
        if not self.is_file:
            return
        place = self.place()
        path = Path(place.path)
        chunk = self.vendor.read(place)
        path.write_bytes(b'{"other": "file"}\n' + path.read_bytes())
        again = self.vendor.read(place, chunk.mark)
        assert again.rewritten
        assert len(again.entries) == len(chunk.entries) + 1
        assert not again.entries[0].known

    def test_an_unknown_record_is_kept(self) -> None:
        """A record of an unknown type is kept word for word, adds no items and breaks nothing."""
        if not self.is_file:
            return
        place = self.place()
        strange = (
            '{"type": "from the future", "data": [1]}',
            "[1, 2]",
            "7",
            '{"type": ["x"], "message": 3, "payload": 4}',
        )
        Path(place.path).write_text("\n".join(strange) + "\n")
        chunk = self.vendor.read(place)
        assert [entry.raw for entry in chunk.entries] == list(strange)
        assert not any(entry.items for entry in chunk.entries)
        assert not chunk.entries[0].known

    def test_what_it_says_fits_into_a_reading(self) -> None:
        """Its records say something, a prompt too, in neutral items that are condensed and resolved unchanged."""
        said = []
        for entry in self.vendor.read(self.place()).entries:
            record = json.loads(entry.raw)
            for one in self.vendor.said(entry, record):
                for item in one.items:
                    check_item(item)
                assert resolve(record, condense(record, list(one.items))) == list(one.items)
                said.append(one)
        assert any(one.turn == BEGINS for one in said)

    def test_it_is_put_back_elsewhere(self) -> None:
        """A mirrored conversation restored into another home, for another directory, is found and says the same."""
        place = self.place()
        entries = self.vendor.read(place).entries
        here = self.root / "another directory"
        here.mkdir()
        env = self.empty_home(self.root / "elsewhere")
        if not self.puts_back:
            with raises(InvalidInput):
                self.vendor.put_back(place, iter([one.raw for one in entries]), env, str(here))
            return
        put = self.vendor.put_back(place, iter([one.raw for one in entries]), env, str(here))
        assert put.vendor_id == self.conversation
        assert self.vendor.find(self.conversation, env) == put
        again = self.vendor.read(put).entries
        assert [one for _, one in self.vendor.items(again)] == [one for _, one in self.vendor.items(entries)]
        if not self.vendor.capabilities.resumes_elsewhere:
            assert self.vendor.resume(LaunchOptions("/", self.conversation, prompt="go", env=env)).cwd == str(here)
        with raises(Conflict):
            self.vendor.put_back(place, iter([one.raw for one in entries]), env, str(here))
        assert [one.raw for one in self.vendor.read(put).entries] == [one.raw for one in again]

    def test_what_is_put_back_is_private(self) -> None:
        """Only their owner may read restored files."""
        if not self.puts_back or not self.is_file:
            return
        raws = [one.raw for one in self.vendor.read(self.place()).entries]
        put = self.vendor.put_back(self.place(), iter(raws), self.empty_home(self.root / "elsewhere"), str(self.root))
        assert Path(put.path).stat().st_mode & 0o077 == 0


class HookContract(VendorWorkbench):
    """What the hook dialect owes."""

    def calls(self) -> list[tuple[str, HookCall]]:
        """The recorded payloads, parsed."""
        return [
            (event, self.vendor.parse_hook({"hook_event_name": event, **payload}, env))
            for event, payload, env in self.payloads()
        ]

    def test_recorded_payloads_are_understood(self) -> None:
        """Every payload the real program sent names its conversation and its moment."""
        calls = self.calls()
        assert {hooks.START, hooks.PROMPT, hooks.BEFORE_TOOL} <= {call.moment for _event, call in calls}
        for event, call in calls:
            assert call.vendor == self.name
            assert call.event == event
            assert call.moment in hooks.MOMENTS
            self.vendor.resume(self.request(call.vendor_id, prompt="its id is an id"))
            assert call.reason in hooks.REASONS if call.moment == hooks.START else True
            assert call.tool if call.moment in (hooks.BEFORE_TOOL, hooks.AFTER_TOOL) else True

    def test_tools_are_understood(self) -> None:
        """Before a tool runs, the gate learns what it is about to do: an edit with its file, a run with its command."""
        requests = [one for _event, call in self.calls() if (one := self.vendor.tool_request(call, "worker"))]
        assert requests
        for one in requests:
            assert one.agent == "worker"
            assert one.paths if one.act == "edit" else True
            assert one.commands if one.act == "run" else True
            assert all(path.startswith("/") for path in one.paths)

    def test_nothing_to_say_is_nothing(self) -> None:
        """An empty answer is no output and status 0, at every moment."""
        for _event, call in self.calls():
            answer = self.vendor.reply(call, HookAnswer())
            assert (answer.stdout, answer.stderr, answer.status) == ("", "", 0)

    def test_a_refusal_gives_its_reason(self) -> None:
        """Deny and ask reach the agent with the reason, in JSON the vendor reads; never as a permission."""
        for _event, call in self.calls():
            if call.moment != hooks.BEFORE_TOOL:
                continue
            for decision in ("deny", "ask"):
                answer = self.vendor.reply(call, HookAnswer(decision=decision, reason="because ✓"))
                assert "because ✓" in _strings(json.loads(answer.stdout))
                assert "allow" not in _strings(json.loads(answer.stdout))
                assert _strings(json.loads(answer.stdout)) & {"deny", "ask"}

    def test_context_is_given_at_its_moment(self) -> None:
        """Text for the model goes out at the vendor's moment for it."""
        given = [
            self.vendor.reply(call, HookAnswer(context="the brief\n✓"))
            for _event, call in self.calls()
            if call.moment == self.vendor.context_moment
        ]
        assert given
        assert all("the brief\n✓" in _strings(json.loads(one.stdout)) for one in given)

    def test_no_payload_breaks_it(self) -> None:
        """Whatever a hook is sent, parsing, judging and answering do not fail."""
        events = {event for event, _call in self.calls()} | {"", "nonsense"}
        whole = HookAnswer(context="c", decision="deny", reason="r", notice="n")
        for payload in HOSTILE_PAYLOADS:
            for event in events:
                call = self.vendor.parse_hook({"hook_event_name": event, **payload}, {})
                self.vendor.tool_request(call, "worker")
                self.vendor.reply(call, whole)

    def test_our_hooks_are_the_ones_it_understands(self) -> None:
        """The installed hooks call `hook VENDOR EVENT`, quoted, and every event is one that onrecord knows."""
        settings = self.vendor.hook_settings(["/opt/a b/python", "-m", "onrecord"])
        if isinstance(settings, str):
            assert '"/opt/a b/python", "-m", "onrecord", "hook"' in settings
            return
        commands = [one for one in _strings(settings) if "onrecord hook" in one]
        assert commands
        for command in commands:
            words = shlex.split(command)
            assert words[:5] == ["/opt/a b/python", "-m", "onrecord", "hook", self.name]
            call = self.vendor.parse_hook({"hook_event_name": words[5], "prompt": "p"}, {})
            assert call.moment != hooks.OTHER, words[5]

    def test_its_files_are_where_they_belong(self) -> None:
        """Files of the user are below the home, files of a project below the project."""
        home = self.root / "home"
        for file in self.vendor.files(port.USER_SCOPE, self.root / "project", self.env):
            assert file.path.is_relative_to(home)
        for file in self.vendor.files(port.PROJECT_SCOPE, self.root / "project", self.env):
            assert file.path.is_relative_to(self.root / "project")
        kinds = {file.what for file in self.vendor.files(port.USER_SCOPE, self.root, self.env)}
        assert kinds & {"hooks", "plugin"}


class VendorContract(RunContract, TranscriptContract, HookContract):
    """Subclass it, say where a real home and real payloads are, and run it with pytest."""


def _strings(value: object) -> set[str]:
    """Every text in a JSON value."""
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return {text for one in value.values() for text in _strings(one)}
    if isinstance(value, list):
        return {text for one in value for text in _strings(one)}
    return set()
