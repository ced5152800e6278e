"""Counting: what coding agents used is on record once, whatever vendors do with their transcripts."""

import json
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import pytest

from onrecord import connect
from onrecord.agents.importing import take_in
from onrecord.agents.mirroring import mirror
from onrecord.session.budget import BudgetVerbs
from onrecord.session.handle import Session
from onrecord.session.session_store import SessionStore
from onrecord.vendors.port import Location, vendor
from onrecord.views.spend import TOKENS
from tests.vendors.homes import DATA, copied, opencode_database

ID = "aaaaaaaa-0000-4000-8000-000000000001"
FORKED = "aaaaaaaa-0000-4000-8000-000000000002"
FIVE_RUNS = "11111111-2222-4333-8444-555555555555"
HERE = Path(__file__).with_name("data")
DAY = 20_772  # 15 November 2026


@pytest.fixture
def records(tmp_path) -> Iterator[SessionStore]:
    with connect(str(tmp_path / "store.db"), project="p") as made:
        yield made


class Claude:
    """Conversations of Claude Code that a test writes."""

    def __init__(self, place: Path, records: SessionStore) -> None:
        self.home, self.records = place / "home", records
        self.env = {"CLAUDE_CONFIG_DIR": str(self.home), "HOME": str(place)}
        (self.home / "projects" / "-p").mkdir(parents=True)

    def path(self, vendor_id: str = ID) -> Path:
        return self.home / "projects" / "-p" / f"{vendor_id}.jsonl"

    def write(self, *calls: tuple[str, int], vendor_id: str = ID, model: str = "opus", cached: int = 0) -> None:
        """One record for each call: its id and how many tokens of output it has so far."""
        with self.path(vendor_id).open("a") as file:
            for call, output in calls:
                used = {"input_tokens": 10, "output_tokens": output, "cache_read_input_tokens": cached}
                said = {"role": "assistant", "id": call, "model": model, "content": call, "usage": used}
                about = {"type": "assistant", "uuid": f"{call}-{output}", "sessionId": vendor_id, "cwd": "/p",
                         "timestamp": "2026-11-15T12:00:00.000Z"}  # fmt: skip
                file.write(json.dumps(about | {"message": said}) + "\n")

    def mirror(self, session: Session, vendor_id: str = ID) -> dict[str, Any]:
        mirror(session, "claude", vendor_id, self.env)
        return dict(session.refresh().views.spend.total)

    def session(self, name: str, *vendor_ids: str) -> Session:
        session = self.records.create(name, agent="claude")
        for vendor_id in vendor_ids or (ID,):
            session.agents.locate("claude", vendor_id, reason="startup")
        return session


@pytest.fixture
def claude(tmp_path, records) -> Claude:
    return Claude(tmp_path, records)


def used(total: dict[str, Any]) -> tuple[int, int, int]:
    return total["calls"], total["input_tokens"], total["output_tokens"]


def test_each_call_counts_once_in_its_largest_form(claude):
    """A message that is written in several records, or grows between two mirrorings, counts once, as it is at last."""
    session = claude.session("fix")
    claude.write(("m1", 1), ("m1", 30), ("m2", 5))
    assert used(claude.mirror(session)) == (2, 20, 35)
    assert used(claude.mirror(session)) == (2, 20, 35)
    claude.write(("m2", 40), ("m2", 40))
    assert used(claude.mirror(session)) == (2, 20, 70)
    claude.write(("m2", 40))
    position = session.head.position
    assert used(claude.mirror(session)) == (2, 20, 70)
    assert session.refresh().head.position == position + 1, "only the copy of the record is new"
    claude.write(("m3", 1), model="haiku", cached=500)
    total = claude.mirror(session)
    assert (*used(total), total["cache_read_tokens"]) == (3, 530, 71, 500)
    assert {model: part["calls"] for model, part in session.views.spend.models.items()} == {"opus": 2, "haiku": 1}
    assert session.views.spend.steps == 3
    assert list(session.views.spend.days) == [str(DAY)]


def test_a_copied_beginning_counts_for_the_session_that_had_it_first(claude):
    """A fork, a new id and a rewritten file repeat earlier messages: only what is new in them counts."""
    session = claude.session("fix")
    claude.write(("m1", 1), ("m2", 2))
    claude.mirror(session)
    claude.write(("m1", 1), ("m2", 2), ("f1", 4), vendor_id=FORKED)
    elsewhere = claude.session("fork", FORKED)
    assert used(claude.mirror(elsewhere, FORKED)) == (1, 10, 4), "another session"
    claude.write(("m3", 8), ("m4", 16))
    assert used(claude.mirror(session)) == (4, 40, 27)
    rotated = "aaaaaaaa-0000-4000-8000-000000000003"
    claude.write(*[(f"m{number}", 2 ** (number - 1)) for number in (1, 2)], ("m3", 8), ("m4", 16), vendor_id=rotated)
    session.agents.locate("claude", rotated, reason="cleared")
    assert used(claude.mirror(session, rotated)) == (4, 40, 27), "another id in the same session"
    claude.write(("m5", 32), vendor_id=rotated)
    assert used(claude.mirror(session, rotated)) == (5, 50, 59)
    kept = claude.path().read_text()
    claude.path().write_text(json.dumps({"type": "summary", "sessionId": ID}) + "\n" + kept)
    claude.write(("m6", 64))
    assert used(claude.mirror(session)) == (6, 60, 123), "a rewritten file"


def test_two_sessions_that_copy_one_beginning_at_once_count_it_once(claude, tmp_path):
    """While one compares the first calls with those of all sessions, another one waits until they are on record."""
    claude.write(("m1", 1), ("m2", 2))
    claude.write(("m1", 1), ("m2", 2), vendor_id=FORKED)
    first, compared, done = claude.session("fix"), threading.Event(), threading.Event()
    claude.session("fork", FORKED)
    counted = BudgetVerbs.counted

    def slowly(self: BudgetVerbs, vendor_name: str, calls: Collection[str]) -> frozenset[str]:
        known = counted(self, vendor_name, calls)
        if self._session.id == first.id:
            compared.set()
            done.wait(0.5)
        return known

    def other() -> None:
        compared.wait()
        with connect(str(tmp_path / "store.db"), project="p") as records:
            mirror(records.get("fork", agent="claude"), "claude", FORKED, claude.env)
        done.set()

    thread = threading.Thread(target=other)
    thread.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BudgetVerbs, "counted", slowly)
        mirror(first, "claude", ID, claude.env)
        thread.join()
    totals = [claude.records.get(name).views.spend.total["calls"] for name in ("fix", "fork")]
    assert totals == [2, 0]


def test_subagents_count_and_disturb_nothing(claude):
    """A subagent's calls count for its agent, and a message that grows meanwhile still counts once."""
    session = claude.session("fix")
    claude.write(("m1", 1), ("m2", 5))
    claude.mirror(session)
    beside = claude.path().with_suffix("") / "subagents" / "agent-1.jsonl"
    beside.parent.mkdir(parents=True)
    claude.write(("s1", 7), vendor_id=FORKED)
    claude.path(FORKED).rename(beside)
    assert used(claude.mirror(session)) == (3, 30, 13)
    claude.write(("m2", 50), ("m3", 1))
    assert used(claude.mirror(session)) == (4, 40, 59)
    assert used(claude.mirror(session)) == (4, 40, 59)


def test_a_call_that_comes_again_much_later_counts_once(claude):
    """A message that the vendor appends again after others were counted is recognised, and mirroring continues."""
    session = claude.session("fix")
    for number in range(4):
        claude.write((f"m{number}", 1))
        claude.mirror(session)
    claude.write(("m1", 1), ("m9", 1))
    assert used(claude.mirror(session)) == (5, 50, 5)


def test_a_forked_session_does_not_pay_for_its_parent(claude, records):
    """The fork of a session that mirrors a forked conversation counts only what the fork added."""
    session = claude.session("fix")
    claude.write(("m1", 1), ("m2", 2))
    claude.mirror(session)
    child = records.get(session.fork("child").id, agent="claude")
    child.agents.locate("claude", FORKED, reason="forked")
    claude.write(("m1", 1), ("m2", 2), ("f1", 4), vendor_id=FORKED)
    assert used(claude.mirror(child, FORKED)) == (1, 10, 4)


def test_importing_again_counts_nothing(records, tmp_path):
    """Imported conversations of every vendor count once, also if they are imported again or from a copied file."""
    for name in ("claude", "codex", "copilot", "gemini", "qwen"):
        copied(name, tmp_path / name / f".{name}")
        of, env = vendor(name), {"HOME": str(tmp_path / name)}
        found = list(of.locations(env))
        sums = [dict(take_in(records, of, one, env).session.refresh().views.spend.total) for one in found]
        assert all(total["calls"] for total in sums), name
        assert [dict(take_in(records, of, one, env).session.refresh().views.spend.total) for one in found] == sums
        beside = tmp_path / name / "copy.jsonl"
        beside.write_bytes(Path(found[0].path).read_bytes())
        again = take_in(records, of, Location(found[0].vendor_id, str(beside), "", ""), env)
        assert dict(again.session.refresh().views.spend.total) == sums[0]


@pytest.mark.parametrize("name", ["claude", "codex", "copilot", "gemini", "qwen"])
def test_counting_a_line_at_a_time_comes_to_the_same(name, tmp_path):
    """A transcript that is mirrored after every line counts as one that is imported whole, models included."""
    copied(name, tmp_path / f".{name}")
    of, env = vendor(name), {"HOME": str(tmp_path)}
    location = max(of.locations(env), key=lambda one: Path(one.path).stat().st_size)
    path = Path(location.path)
    with connect("memory:", project="p") as records:
        whole = take_in(records, of, location, env).session.refresh().views.spend
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"")
    with connect("memory:", project="p") as records:
        session = records.create("fix", agent=name)
        session.agents.locate(name, location.vendor_id, reason="startup")
        for line in lines:
            with path.open("ab") as file:
                file.write(line)
            mirror(session, name, location.vendor_id, env, location=location)
        spend = session.refresh().views.spend
    assert (spend.total, spend.models, spend.days) == (whole.total, whole.models, whole.days)
    assert spend.total["calls"]


def total_of(records: SessionStore, name: str, env: dict[str, str], vendor_id: str) -> dict[str, Any]:
    """What an imported conversation used."""
    of = vendor(name)
    location = of.find(vendor_id, env)
    assert location is not None
    return dict(take_in(records, of, location, env).session.refresh().views.spend.total)


def stated(path: Path) -> Iterator[dict[str, Any]]:
    """The whole records of a file."""
    for line in path.read_text().splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            continue  # cut off by a kill


def test_counts_of_codex_are_its_own_totals(records, tmp_path):
    """What was counted of a thread is the total that Codex itself states last."""
    home = copied("codex", tmp_path / ".codex")
    for path in home.glob("sessions/*/*/*/*.jsonl"):
        said = [one["payload"]["info"]["total_token_usage"] for one in stated(path)
                if one["payload"].get("type") == "token_count"]  # fmt: skip
        total = total_of(records, "codex", {"HOME": str(tmp_path)}, path.stem[-36:])
        assert (total["input_tokens"], total["output_tokens"]) == (said[-1]["input_tokens"], said[-1]["output_tokens"])
        assert total["calls"] == len(said)
    models = {model for head in records.sessions() for model in records.get(head.session).views.spend.models}
    assert models == {"gpt-5.5"}


def test_counts_of_copilot_are_its_own_totals(records, tmp_path):
    """What was counted of a conversation is the total that Copilot states when it shuts down."""
    home = copied("copilot", tmp_path / ".copilot")
    for path in home.glob("session-state/*/events.jsonl"):
        said = [one["data"]["modelMetrics"]["mock-model"] for one in stated(path) if one["type"] == "session.shutdown"]
        total = total_of(records, "copilot", {"HOME": str(tmp_path)}, path.parent.name)
        expected = said[-1]["requests"]["count"], said[-1]["usage"]["inputTokens"], said[-1]["usage"]["outputTokens"]
        assert used(total) == expected


def test_counts_of_claude_are_its_own_totals(records, tmp_path):
    """What was counted since the last kill is the total per model that Claude Code states at its end; so is its cost."""
    home = copied("claude", tmp_path / ".claude")
    (home / "projects" / "-p").mkdir()
    (home / "projects" / "-p" / f"{FIVE_RUNS}.jsonl").write_bytes((HERE / "claude-five-runs.jsonl").read_bytes())
    for path in home.glob("projects/*/*.jsonl"):
        said = [one for one in stated(path) if one["type"] == "cost-state"][-1]["modelUsage"]
        lines = path.read_text().splitlines()
        killed = max([0, *[number for number, line in enumerate(lines) if '"<synthetic>"' in line]])
        path.write_text("\n".join(lines[killed:]) + "\n")
        done = take_in(records, vendor("claude"), Location(path.stem, str(path), "", ""), {"HOME": str(tmp_path)})
        models = done.session.refresh().views.spend.models
        assert {model: (one["input_tokens"], one["output_tokens"], one["cost"]) for model, one in models.items()} == {
            model: (one["inputTokens"] + one["cacheReadInputTokens"] + one["cacheCreationInputTokens"],
                    one["outputTokens"], round(one["costUSD"], 9))
            for model, one in said.items()
        }  # fmt: skip
    assert used(records.get("claude-11111111").views.spend.total) == (5, 50, 25)


def test_costs_of_claude_are_its_own_sums(claude):
    """What Claude Code states as the cost of its calls is their cost; calls of a process that was killed have none."""
    session = claude.session("fix")

    def state(calls: int, cost: float, model: str = "opus") -> None:
        used = {"inputTokens": 10 * calls, "outputTokens": 5 * calls, "costUSD": cost}
        with claude.path().open("a") as file:
            file.write(json.dumps({"type": "cost-state", "sessionId": ID, "modelUsage": {model: used}}) + "\n")

    claude.write(("m1", 5), ("m2", 5))
    state(2, 0.5)
    total = claude.mirror(session)
    assert (total["calls"], total["cost"], total["unknown_cost_calls"]) == (2, 0.5, 0)
    claude.write(("m3", 5))
    assert claude.mirror(session)["unknown_cost_calls"] == 1
    state(3, 0.75)
    total = claude.mirror(session)
    assert (total["calls"], total["cost"], total["unknown_cost_calls"]) == (3, 0.75, 0)
    state(3, 0.75)
    assert claude.mirror(session) == total
    claude.write(("killed", 5), ("m4", 5))
    state(1, 0.25)
    total = claude.mirror(session)
    assert (total["calls"], total["cost"], total["unknown_cost_calls"]) == (5, 1.0, 1), "it began to count again"
    claude.write(("m5", 5))
    state(3, 0.75)
    total = claude.mirror(session)
    assert (total["calls"], total["cost"], total["unknown_cost_calls"]) == (6, 1.5, 0), (
        "two calls since, and two unknown"
    )


def test_counts_of_gemini_and_qwen_are_the_sums_they_state(records, tmp_path):
    """What was counted is the sum of the totals that each message (Gemini) or response (Qwen) states, each once."""
    for path in copied("gemini", tmp_path / ".gemini").glob("tmp/*/chats/*.jsonl"):
        said = {one["id"]: one["tokens"]["total"] for one in stated(path) if one.get("tokens")}
        vendor_id = next(one["sessionId"] for one in stated(path) if "projectHash" in one)
        if said:
            total = total_of(records, "gemini", {"HOME": str(tmp_path)}, vendor_id)
            assert (total["calls"], total["input_tokens"] + total["output_tokens"]) == (len(said), sum(said.values()))
    for path in copied("qwen", tmp_path / ".qwen").glob("projects/*/chats/*.jsonl"):
        events = [one.get("systemPayload", {}).get("uiEvent", {}) for one in stated(path)]
        said = {one["response_id"]: one["total_token_count"] for one in events if "total_token_count" in one}
        total = total_of(records, "qwen", {"HOME": str(tmp_path)}, path.stem)
        assert (total["calls"], total["input_tokens"] + total["output_tokens"]) == (len(said), sum(said.values()))


def test_counts_of_opencode_are_its_own_totals(records, tmp_path):
    """What was counted is what opencode keeps as a conversation's total; of a fork, without what it copied."""
    opencode_database(tmp_path / "data" / "opencode" / "opencode.db", rows=True)
    rows = json.loads((DATA / "opencode" / "rows.json").read_text())
    env = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
    said = {row["id"]: (row["tokens_input"], row["tokens_output"]) for row in rows["session"]}
    for cut in ("ses_e21fa2c49ffeVjznpWfyDca5of", "ses_e21f55760ffe9ZFmpuUkw02Vj4"):
        said.pop(cut)  # only some of their messages are in this copy of the database
    first, fork = "ses_e22017382ffeyL0CsXQZI1PEZH", "ses_e220099d4ffeUtIpAUJvdKO7hy"
    for vendor_id in sorted(said, key=lambda one: one != first):
        total = total_of(records, "opencode", env, vendor_id)
        copied_calls = 3 if vendor_id == fork else 0
        expected = said[vendor_id][0] - 10 * copied_calls, said[vendor_id][1] - 5 * copied_calls
        assert (total["input_tokens"], total["output_tokens"]) == expected, vendor_id


def test_a_limit_of_spend_prices_what_agents_use(claude):
    """With a limit of spend, calls are priced as they are counted, earlier ones too; an unknown model stays unknown."""
    session = claude.session("fix")
    claude.write(("m1", 5), model="claude-opus-5-5")
    claude.write(("m2", 5), model="nobody-knows")
    total = claude.mirror(session)
    assert (total["cost"], total["unknown_cost_calls"]) == (0.0, 2), "nobody asked for prices"
    session.budget.set(spend=0.0005)
    claude.write(("m3", 1), model="claude-opus-5-5")
    claude.mirror(session)
    claude.write(("m3", 5), ("m4", 5), model="claude-opus-5-5")
    total = claude.mirror(session)
    assert (round(total["cost"], 9), total["unknown_cost_calls"]) == (0.00042, 1)
    cells = session.views.spend.days[str(DAY)]["claude"]
    assert (cells["claude-opus-5-5"]["unpriced"], cells["nobody-knows"]["unpriced"]) == (
        {"input_tokens": 0, "output_tokens": 0}, {"input_tokens": 10, "output_tokens": 5},
    )  # fmt: skip
    claude.write(("m5", 5), model="claude-opus-5-5")
    claude.mirror(session)
    out = session.views.spend.exhausted(0)
    assert out is not None
    assert (out.limit, round(out.used, 9)) == ("spend", 0.00056)


@pytest.mark.parametrize(
    ("name", "record", "expected"),
    [
        ("claude", {"type": "assistant", "uuid": "u", "sessionId": ID, "message": {"id": "m", "role": "assistant", "content": "", "usage": {
            "input_tokens": 3, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20, "output_tokens": 50,
            "output_tokens_details": {"thinking_tokens": 30}}}}, (123, 100, 20, 50, 30)),
        ("codex", {"type": "token_usage_record", "payload": {"response_id": "r", "usage": {
            "input_tokens": 123, "cached_input_tokens": 100, "cache_write_input_tokens": 20, "output_tokens": 50,
            "reasoning_output_tokens": 30}}}, (123, 100, 20, 50, 30)),
        ("codex", {"type": "event_msg", "payload": {"type": "token_count", "info": {
            "total_token_usage": {"input_tokens": 900, "output_tokens": 90},
            "last_token_usage": {"input_tokens": 123, "cached_input_tokens": 100, "output_tokens": 50}}}},
         (123, 100, 0, 50, 0)),
        ("gemini", {"id": "m", "timestamp": "", "type": "gemini", "model": "x", "tokens": {
            "input": 100, "cached": 80, "tool": 23, "output": 20, "thoughts": 30, "total": 173}}, (123, 80, 0, 50, 30)),
        ("qwen", {"type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": {
            "event.name": "qwen-code.api_response", "response_id": "r", "model": "x", "input_token_count": 123,
            "cached_content_token_count": 100, "output_token_count": 50, "thoughts_token_count": 30,
            "total_token_count": 173}}}, (123, 100, 0, 50, 30)),
        ("qwen", {"type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": {
            "event.name": "qwen-code.api_response", "response_id": "r", "model": "x", "input_token_count": 123,
            "cached_content_token_count": 100, "output_token_count": 20, "thoughts_token_count": 30,
            "total_token_count": 173}}}, (123, 100, 0, 50, 30)),
        ("copilot", {"type": "session.usage_record", "id": "1", "data": {"usage": {
            "apiCallId": "c", "model": "x", "inputTokens": 123, "cacheReadTokens": 100, "cacheWriteTokens": 20,
            "outputTokens": 50, "reasoningTokens": 30}}}, (123, 100, 20, 50, 30)),
        ("opencode", {"table": "message", "row": {"id": "m", "session_id": "s", "time_created": 1, "data": json.dumps({
            "modelID": "x", "time": {"created": 7}, "cost": 0.25, "tokens": {
                "total": 173, "input": 3, "output": 20, "reasoning": 30, "cache": {"read": 100, "write": 20}}})}},
         (123, 100, 20, 50, 30)),
    ],
)  # fmt: skip
def test_counts_mean_the_same_for_all_vendors(name, record, expected):
    """Input is whole, with what a cache was used for; output is whole, with the reasoning; whatever a vendor's form."""
    entry = vendor(name).parse(json.dumps(record))
    assert [tuple(getattr(one, count) for count in TOKENS) for one in entry.usage] == [expected]
    assert entry.known


@pytest.mark.parametrize("count", [-1, "5", None, True, 1e300])
def test_damaged_counts_are_no_counts(count):
    """A count that is no number counts nothing, and costs neither the record nor its words."""
    said = {"id": "m", "role": "assistant", "model": "x", "content": "words", "usage": {"output_tokens": count}}
    entry = vendor("claude").parse(json.dumps({"type": "assistant", "uuid": "u", "sessionId": ID, "message": said}))
    assert (list(entry.usage), entry.known, len(entry.items)) == ([], True, 1)
