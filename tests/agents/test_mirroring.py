"""Mirroring: a growing transcript is on record word for word, once, whichever process copies it and whatever happens."""

import json
import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import pytest

from onrecord import connect
from onrecord.agents import mirroring
from onrecord.agents.generations import event_id, generations, kept, standing, standings
from onrecord.agents.mirroring import mirror
from onrecord.agents.restoring import replaced_in
from onrecord.agents.resuming import plan
from onrecord.errors import InvalidInput, NotFound
from onrecord.log.items import text_of
from onrecord.log.readings import part_of, rows_of
from onrecord.vendors.port import Location

ID = "aaaaaaaa-0000-4000-8000-000000000001"


class Conversation:
    """A transcript of Claude Code that a test writes, and its linked session."""

    def __init__(self, place: Path) -> None:
        self.store = place / "store.db"
        self.path = place / "home" / "projects" / "-p" / f"{ID}.jsonl"
        self.path.parent.mkdir(parents=True)
        self.env = {"CLAUDE_CONFIG_DIR": str(place / "home"), "HOME": str(place)}
        self.count = 0
        self.session = connect(str(self.store), project="p").create("fix", agent="claude")
        self.session.agents.locate("claude", ID, reason="startup")

    def write(self, *texts: str, end: str = "\n") -> None:
        with self.path.open("a") as file:
            for text in texts:
                self.count += 1
                record = {"type": "user", "uuid": f"u{self.count}", "sessionId": ID, "cwd": "/p",
                          "message": {"role": "user", "content": text}}  # fmt: skip
                file.write(json.dumps(record) + end)

    def lines(self) -> list[str]:
        return self.path.read_text().splitlines()

    def mirror(self, **options):
        return mirror(self.session, "claude", ID, self.env, **options)

    def kept(self) -> list[str]:
        return [one.raw for one in kept(self.session, "claude", ID)]


@pytest.fixture
def conversation(tmp_path) -> Conversation:
    return Conversation(tmp_path)


def test_what_grew_is_taken_and_nothing_twice(conversation):
    """Mirroring is incremental and idempotent: it continues after the newest part on record."""
    conversation.write("one", "two")
    assert conversation.mirror().records == 2
    position = conversation.session.head.position
    assert conversation.mirror().records == 0
    assert conversation.session.refresh().head.position == position
    conversation.write("three")
    assert conversation.mirror().records == 1
    assert conversation.kept() == conversation.lines()
    (first, second) = conversation.session.events(kinds=("payload.kept",))
    assert first.id == f"mirror/claude/{ID}/0/0"
    assert second.id == f"mirror/claude/{ID}/0/{first.data['mark_after'][0]}"
    assert part_of(second.id, second.data) == ("claude", ID, "", 0, False)
    assert part_of(first.id, first.data) == ("claude", ID, "", 0, True)


def test_torn_lines_are_counted_and_an_unfinished_one_is_waited_for(conversation):
    """A line that was cut off is neither kept nor rewritten; one that is still being written is read when it is complete."""
    conversation.write("one")
    with conversation.path.open("a") as file:
        file.write('{"type": "user", "mess\n')
    conversation.write("two", end="")
    whole = conversation.path.read_bytes()
    conversation.path.write_bytes(whole[:-10])
    done = conversation.mirror()
    assert (done.records, done.torn) == (1, 1)
    conversation.path.write_bytes(whole + b"\n")
    assert conversation.mirror().records == 1
    assert len(conversation.kept()) == 2
    assert conversation.path.read_bytes() == whole + b"\n"


def test_a_file_that_was_replaced_begins_a_new_generation(conversation):
    """When the vendor rewrites its file, the new content is copied again, and the earlier content stays on record."""
    conversation.write("one", "two")
    conversation.mirror()
    before = conversation.lines()
    conversation.path.unlink()
    conversation.write("another")
    with conversation.path.open("a") as file:
        file.write("\n".join(before) + "\n")
    done = conversation.mirror()
    assert (done.rewritten, done.records) == (True, 3)
    assert conversation.kept() == conversation.lines()
    assert [one.raw for one in kept(conversation.session, "claude", ID, generation=0)] == before


def test_a_copy_with_fewer_or_other_records_never_counts_instead(conversation):
    """A stub or another file with the same id becomes a generation of its own; the better copy counts and keeps growing."""
    conversation.write("one", "two", "three")
    conversation.mirror()
    real = conversation.path.read_text()
    for stub in (real.splitlines(keepends=True)[0], '{"type": "mode"}\n' * 9):
        conversation.path.write_text(stub)
        assert conversation.mirror().rewritten
        assert conversation.kept() == real.splitlines()
    conversation.path.write_text(real)
    conversation.write("four")
    done = conversation.mirror()
    assert (done.rewritten, done.records) == (False, 1)
    assert conversation.kept() == conversation.lines()
    assert generations(conversation.session, "claude", ID) == [0, 1, 2]
    assert [one.raw for one in kept(conversation.session, "claude", ID, generation=1)] == real.splitlines()[:1]
    conversation.path.write_text(real)
    conversation.write("another four", "another five")
    conversation.mirror()
    assert conversation.kept() == conversation.lines(), "most of the old records and more than it had: it was repaired"


def follow(place: str, env: dict[str, str]) -> None:
    session = connect(place, project="p").get("fix", agent="claude")
    while not Path(env["DONE"]).exists():
        mirror(session, "claude", ID, env)
    mirror(session, "claude", ID, env)


def test_many_who_mirror_at_once_take_everything_once(conversation, tmp_path, count):
    """Hook, wrapper and person mirror a growing file at the same time: every record is there once, in order."""
    conversation.write("begin")
    env = conversation.env | {"DONE": str(tmp_path / "done")}
    spawn = multiprocessing.get_context("spawn")
    several = [spawn.Process(target=follow, args=(str(conversation.store), env)) for _ in range(3)]
    for one in several:
        one.start()
    for number in range(count(60, 2000)):
        conversation.write(*(f"{number}/{part}" for part in range(5)))
        time.sleep(0.005)
    (tmp_path / "done").touch()
    for one in several:
        one.join(60)
        assert one.exitcode == 0
    assert conversation.kept() == conversation.lines()


def test_killed_in_the_middle_it_goes_on_where_it_was(conversation, count):
    """After SIGKILL at any moment the next process copies the rest, and no record is missing or there twice."""
    conversation.write(*(f"record {number} " + "x" * 2000 for number in range(3000)))
    code = (
        "import sys; from onrecord import connect; from onrecord.agents import mirroring\n"
        "mirroring.CHUNK_BYTES = 20_000\n"
        f"s = connect({str(conversation.store)!r}, project='p').get('fix', agent='claude')\n"
        f"print('go', flush=True); mirroring.mirror(s, 'claude', {ID!r}, {conversation.env!r})\n"
    )
    for number in range(count(3, 50)):
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.02 * (number + 1))
            process.kill()
    partly = len(conversation.kept())
    conversation.mirror()
    assert partly <= 3000
    assert conversation.kept() == conversation.lines()


def test_a_large_transcript_needs_little_memory(conversation, count):
    """A file of gigabytes is copied in pieces: the process stays small whatever the size of the file."""
    line = json.dumps(
        {"type": "user", "uuid": "u", "sessionId": ID, "message": {"role": "user", "content": "x" * 60_000}}
    )
    size = count(96, 1100) * 1024 * 1024
    with conversation.path.open("w") as file:
        while file.tell() < size:
            file.write(line + "\n")
    code = (
        "from pathlib import Path; from onrecord import connect; from onrecord.agents.mirroring import kept, mirror\n"
        f"s = connect({str(conversation.store)!r}, project='p').get('fix', agent='claude')\n"
        f"done = mirror(s, 'claude', {ID!r}, {conversation.env!r})\n"
        f"print(done.records, sum(1 for _ in kept(s, 'claude', {ID!r})), "
        # Not ru_maxrss: that begins with the size of the process that started this one.
        "int(Path('/proc/self/status').read_text().partition('VmHWM:')[2].split()[0]) // 1024)\n"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    records, again, megabytes = map(int, told)
    assert records == again == size // (len(line) + 1) + 1
    assert megabytes < 80


def test_a_record_larger_than_an_event_may_be_is_kept_in_pieces(conversation, monkeypatch):
    """One enormous vendor record is recorded whole, over several events of one transaction."""
    monkeypatch.setattr(mirroring, "PIECE_CHARACTERS", 1000)
    conversation.write("small", "y" * 5500, "small again")
    conversation.mirror()
    assert conversation.kept() == conversation.lines()
    assert all(
        sum(map(len, event.data["lines"])) <= 1000 for event in conversation.session.events(kinds=("payload.kept",))
    )
    conversation.write("later")
    assert conversation.mirror().records == 1


def test_what_was_erased_is_not_brought_back(conversation):
    """After an erasure the mirror copies what is new; the erased part stays erased, and the mirror knows it."""
    conversation.write("my password is hunter2")
    conversation.mirror()
    position = standing(conversation.session, "claude", ID).position
    conversation.session.log.erase("a password", positions=[position])
    assert conversation.mirror().records == 0
    conversation.write("later")
    assert conversation.mirror().records == 1
    assert "hunter2" not in json.dumps(conversation.kept())
    assert mirroring.has_gaps(conversation.session, "claude", ID)


def test_a_hook_gives_it_a_moment_and_the_next_one_goes_on(conversation, monkeypatch):
    """Mirroring is bounded in time: the next call copies what this one did not reach."""
    monkeypatch.setattr(mirroring, "CHUNK_BYTES", 100)
    conversation.write(*(f"record {number}" for number in range(50)))
    done = conversation.mirror(seconds=0)
    assert (done.complete, done.records) == (False, 1)
    while not conversation.mirror(seconds=0).complete:
        pass
    assert conversation.kept() == conversation.lines()


def test_a_session_that_has_ended_is_left_alone(conversation):
    """A closed session accepts nothing more; mirroring reports that and does not raise."""
    conversation.write("one")
    conversation.session.close()
    assert conversation.mirror().why_not == "the session is closed"


def test_only_linked_conversations_are_mirrored(conversation):
    """An id without a link is refused; a missing file is reported."""
    with pytest.raises(NotFound):
        mirror(conversation.session, "claude", "bbbbbbbb-0000-4000-8000-000000000001", conversation.env)
    assert conversation.mirror().why_not == "the vendor's file is missing"


@pytest.mark.parametrize("hostile", ["../../etc/passwd", "a\nb", "x" * 300, "\x1b[2J", ""])
def test_hostile_ids_become_no_path_and_no_event(conversation, hostile):
    """A malformed conversation id is refused before any file is opened, or not found (T08)."""
    position = conversation.session.head.position
    try:
        conversation.session.agents.locate("claude", hostile)
    except InvalidInput:
        assert conversation.session.refresh().head.position == position
    else:
        assert mirror(conversation.session, "claude", hostile, conversation.env).why_not


def test_the_place_may_be_given(conversation, tmp_path):
    """A hook passes the path of the file: no search by id is needed."""
    elsewhere = tmp_path / "elsewhere.jsonl"
    conversation.write("one")
    conversation.path.rename(elsewhere)
    assert conversation.mirror(location=Location(ID, str(elsewhere), "", "")).records == 1


def test_a_record_from_elsewhere_cannot_point_at_other_files(conversation, tmp_path):
    """A recorded path is used only if the file really contains the conversation."""
    secret = tmp_path / "secret.jsonl"
    secret.write_text('{"type": "user", "password": "hunter2"}\n')
    conversation.session.agents.locate("claude", ID, transcript=str(secret))
    assert conversation.mirror().why_not == "the vendor's file is missing"
    conversation.write("one")
    assert conversation.mirror().path == str(conversation.path)
    assert "hunter2" not in json.dumps(conversation.kept())


def test_a_secret_in_a_transcript_is_replaced_in_place(conversation):
    """The record stays valid JSON of the same structure, its reading works, and an event says what was replaced."""
    token = "ghp_" + "a1B2c3" * 6
    conversation.write("before", f'run `export T={token}` "now"\n', f"{'x' * 100} {token} {'y' * 100}")
    conversation.mirror()
    assert token in "".join(conversation.lines()), "the control: the vendor's own file has it"
    for before, after in zip(conversation.lines(), conversation.kept(), strict=True):
        old, new = json.loads(before), json.loads(after)
        assert old.keys() == new.keys()
        assert token not in after
        assert old | {"message": None} == new | {"message": None}
    (event,) = conversation.session.events(kinds=("payload.kept",))
    texts = [text_of(item) for row in rows_of(event.data) for item in row.items]
    assert any(text.startswith("x" * 100 + " [secret:github-token:") and text.endswith("y" * 100) for text in texts)
    (event,) = conversation.session.events(kinds=("secret.found",))
    assert event.data["found"] == [{"rule": "github-token", "place": "lines", "count": 2}]
    assert conversation.mirror().records == 0
    planned = plan(conversation.session, "claude", conversation.env, str(conversation.path.parent))
    assert replaced_in(conversation.session, planned) == {"github-token": 2}


def test_a_secret_that_arrives_in_two_halves_is_replaced(conversation):
    """A vendor's line that is half written when it is first read is looked at when it is whole."""
    token = "ghp_" + "a1B2c3" * 6
    conversation.write("one")
    whole = json.dumps({"type": "user", "uuid": "u9", "sessionId": ID, "message": {"role": "user", "content": token}})
    half = whole.index("a1B2c3a1B2c3a1B2")
    with conversation.path.open("a") as file:
        file.write(whole[:half])
    conversation.mirror()
    with conversation.path.open("a") as file:
        file.write(whole[half:] + "\n")
    conversation.mirror()
    assert "[secret:github-token:" in conversation.kept()[1]
    assert "a1B2c3" not in "".join(conversation.kept())


@pytest.mark.parametrize("others", [0, 2, 3, 4, 250])
def test_how_far_a_conversation_is_on_record_is_found_behind_others(others):
    """The newest part of a conversation counts, however many parts of other conversations are behind it."""
    with connect("memory:", project="p") as records:
        session = records.open("work")
        drafts = [
            ("mine", 0, 0),
            ("mine", 1, 0),
            ("mine", 0, 7),
            *[(f"other-{number}", 0, 0) for number in range(others)],
        ]
        for conversation, generation, offset in drafts:
            data = {"lines": [], "mark_before": [0], "mark_after": [offset + 1], "reading": []}
            session.log.record("payload.kept", data, id=event_id("claude", conversation, generation, offset))
        found = [(stand.generation, stand.mark and stand.mark.offset) for stand in standings(session, "claude", "mine")]
        assert found == [(0, 8), (1, 1)]
        assert standing(session, "claude", "missing").position == 0
