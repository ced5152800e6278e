"""Rollouts: keeping the ids of long conversations, assembling samples, and continuing after a restart."""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from array import array
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter, process_time
from typing import Any, NamedTuple

import onrecord
from bench.report import Figure
from bench.rollout_lists import ListRecord, ListSample, ListTrajectory, merge, samples_of
from bench.workload import text
from onrecord.rollout.recording import Rollout, open_rollout
from onrecord.rollout.samples import assemble
from onrecord.rollout.trajectory import LinearTrajectory
from onrecord.rollout.turns import ChatRequest, Joint, Reply, Tokenized

TURNS = 200
OBSERVED, SAMPLED = 500, 300
"""Ids of one turn: 200 turns have 160,000."""


class Turn(NamedTuple):
    """One turn of the workload: the request, its ids, and the engine's answer."""

    messages: list[dict[str, Any]]
    """All messages of the request; the last is new."""
    suffix: list[int]
    reply: dict[str, Any]
    output: list[int]
    logprobs: list[float]


def workload(count: int, seed: int = 7) -> list[Turn]:
    """An agent that calls a tool in every turn; each request has all messages so far."""
    source = random.Random(seed)
    messages: list[dict[str, Any]] = [{"role": "system", "content": text(source, 2_000)}]
    turns = []
    for number in range(count):
        asked = {"role": "tool", "content": text(source, 1_500), "tool_call_id": f"call-{number - 1}"}
        messages = [*messages, asked if number else {"role": "user", "content": text(source, 1_500)}]
        arguments = json.dumps({"command": text(source, 200), "number": number})
        call = {"id": f"call-{number}", "type": "function", "function": {"name": "bash", "arguments": arguments}}
        reply = {"role": "assistant", "content": text(source, 800), "tool_calls": [call]}
        turns.append(
            Turn(
                messages,
                [source.randrange(150_000) for _ in range(OBSERVED)],
                reply,
                [source.randrange(150_000) for _ in range(SAMPLED)],
                array("f", [-source.random() for _ in range(SAMPLED)]).tolist(),
            )
        )
        messages = [*messages, reply]
    return turns


class Rendered:
    """A tokenizer with prepared answers: rendering is not measured."""

    ids: Sequence[int]

    def prompt(self, messages: Sequence[Any], tools: Any) -> Tokenized:
        """The ids of a first prompt."""
        return Tokenized(self.ids)

    def suffix(self, before: Sequence[Any], appended: Sequence[Any], tools: Any) -> Tokenized:
        """The ids of the new messages."""
        return Tokenized(self.ids)

    def repair(self, tail: Sequence[int], suffix: Sequence[int]) -> Joint:
        """Nothing needs a repair."""
        return Joint()


def parsed(turns: list[Turn]) -> list[Turn]:
    """The same turns as a server gets them: each request has its own objects."""
    return [turn._replace(messages=json.loads(json.dumps(turn.messages))) for turn in turns]


def ours(turns: list[Turn], *, hand_out: bool = False, repeat: bool = True) -> LinearTrajectory:
    """Keep the turns; with `hand_out`, also assemble each prompt as an engine gets it.

    With `repeat` each request has the whole conversation, in the caller's own message objects, so all of it must be
    compared. Without, it has only the new messages and names the turn that they follow.
    """
    trajectory, tokenizer = LinearTrajectory(), Rendered()
    for turn in turns:
        tokenizer.ids = turn.suffix
        last = None if repeat else trajectory.last
        prepared = trajectory.prepare(ChatRequest(turn.messages[-1:] if last else turn.messages, after=last), tokenizer)
        if hand_out:
            prepared.prompt_ids  # noqa: B018 - a property that does the work
        trajectory.update_pretokenized_state(
            prepared, Reply(turn.reply, turn.output, turn.logprobs, "tool_calls", response="{}")
        )
    return trajectory


def lists(turns: list[Turn]) -> ListTrajectory:
    """Keep the turns with lists; this also assembles the prompt."""
    trajectory = ListTrajectory()
    for turn in turns:
        prompt = trajectory.prepare(turn.messages, turn.suffix)
        record = ListRecord(prompt, turn.output, turn.logprobs)
        trajectory.commit(turn.messages, prompt, record, turn.reply)
    return trajectory


def best(call: Callable[[], object], times: int) -> float:
    """Processor seconds of the fastest of a few runs, because other programs use the machine too."""
    return min(_processor_seconds(call)[1] for _ in range(times))


def _processor_seconds(call: Callable[[], Any]) -> tuple[Any, float]:
    start = process_time()
    made = call()
    return made, process_time() - start


def trajectories(_place: Path, *, quick: bool) -> list[Figure]:
    """Bookkeeping and assembly against lists, and the cost of doubling the turns."""
    turns, times = workload(TURNS), 3 if quick else 7
    twice = workload(2 * TURNS)
    mine, theirs = ours(turns, hand_out=True), lists(turns)
    handed = best(lambda: ours(turns, hand_out=True), times)
    kept, kept_twice = best(lambda: ours(turns, repeat=False), times), best(lambda: ours(twice, repeat=False), times)
    repeated, repeated_twice = best(lambda: ours(turns), times), best(lambda: ours(twice), times)
    listed = best(lambda: lists(turns), 2)
    told, told_twice = parsed(turns), parsed(twice)
    compared = best(lambda: ours(told, hand_out=True), times)
    compared_twice = best(lambda: ours(told_twice, hand_out=True), times)
    listed_twice = best(lambda: lists(told_twice), 1)
    records = mine.standing()
    per_turn = samples_of(theirs.records)
    _keep_memory()
    assembled = best(lambda: assemble(records), times * 5)
    merged, copying = _processor_seconds(lambda: merge(per_turn))
    lean = best(lambda: merge(per_turn, deep=False), 2)
    longer = ours(twice, repeat=False).standing()
    assembled_twice = best(lambda: assemble(longer), times * 5)
    _check_identical(mine, theirs, merged)
    assert ours(twice) == ours(twice, repeat=False)
    tokens = mine.length
    stored = sum(len(record.prompt) + len(record.output) for record in mine.records)
    about = f"{TURNS} turns, {tokens:,} tokens"
    return [
        Figure(
            "rollout bookkeeping against lists, prompts handed out", listed / handed, "x", 20, at_least=True,
            detail=f"{about}: lists {listed * 1e3:.0f} ms, ours {handed * 1e3:.1f} ms ({repeated * 1e3:.1f} without)",
        ),
        Figure(
            "rollout bookkeeping against lists, requests parsed again", listed / compared, "x",
            detail=f"ours {compared * 1e3:.1f} ms; twice the turns {compared_twice / compared:.2f}x, "
            f"then {listed_twice / compared_twice:.1f}x against lists: all that a request repeats is compared",
        ),
        Figure(
            "rollout assembly against pairwise merge by copying", copying / assembled, "x", 500, at_least=True,
            detail=f"copies {copying:.1f} s, ours {assembled * 1e3:.2f} ms, bit-identical",
        ),
        Figure("rollout assembly against pairwise merge without deep copies", lean / assembled, "x"),
        Figure(
            "rollout bookkeeping, twice the turns", kept_twice / kept, "x", 2.2,
            detail=f"each request says what is new; {kept * 1e3:.1f} ms",
        ),
        Figure(
            "rollout bookkeeping, twice the turns, each request repeating all", repeated_twice / repeated, "x",
            detail=f"four times the messages to compare; {(repeated_twice - kept_twice) / (2 * TURNS) ** 2 * 1e9:.0f} "
            "ns for each",
        ),
        Figure("rollout assembly, twice the turns", assembled_twice / assembled, "x", 2.2),
        Figure(
            "integers stored per token", stored / tokens, "", 1.1,
            detail=f"lists {theirs.stored_ints() / tokens:.0f}",
        ),
    ]  # fmt: skip


def _keep_memory() -> None:
    """Let the allocator keep freed memory from now on: page faults come from the system, and in leaps."""
    block = bytearray(31 << 20)
    del block


def _check_identical(mine: LinearTrajectory, theirs: ListTrajectory, merged: ListSample) -> None:
    (sample,) = assemble(mine.standing())
    assert sample.tokens.tolist() == merged.tokens == mine.token_ids.tolist() == theirs.checkpoints[-1]
    assert sample.loss_mask.tolist() == merged.loss_mask
    assert sample.logprobs.tolist() == merged.logprobs
    assert sample.status == merged.status


def _play(rollout: Rollout, turns: list[Turn]) -> list[float]:
    """Record the turns; returns the seconds that each took."""
    tokenizer = Rendered()
    seconds = []
    for turn in turns:
        tokenizer.ids = turn.suffix
        reply = Reply(turn.reply, turn.output, turn.logprobs, "tool_calls", response="{}")
        start = perf_counter()
        rollout.commit(rollout.intend(rollout.prepare(ChatRequest(turn.messages), tokenizer)), reply)
        seconds.append(perf_counter() - start)
    return seconds


def on_record(place: Path, *, quick: bool) -> list[Figure]:
    """The same turns on record: time of a turn and bytes of the log, and the cost of doubling."""
    count = 50 if quick else TURNS
    records = onrecord.connect(str(place / "ours.db"), project="bench")
    rollout = open_rollout(records, "rollout")
    turns = workload(2 * count)
    first = _play(rollout, turns[:count])
    size = sum(weight.size for weight in records.store.weigh(rollout.session.id))
    both = first + _play(rollout, turns[count:])
    doubled = sum(weight.size for weight in records.store.weigh(rollout.session.id))
    records.close()
    turn = statistics.median(first)
    detail = f"{turn * 1e3:.2f} ms a turn (two durable steps), {size / count / (OBSERVED + SAMPLED):.1f} bytes a token"
    return [
        Figure("rollout on record, twice the turns, time", 2 * statistics.median(both) / turn, "x", 2.2, detail=detail),
        Figure("rollout on record, twice the turns, bytes", doubled / size, "x", 2.2),
    ]


RECOVER = """
import json, sys, time, onrecord
from onrecord.rollout.recording import open_rollout
records = onrecord.connect(sys.argv[1], project="bench")
samples, tokens = [], 0
start, busy = time.perf_counter(), time.process_time()
for number in range(int(sys.argv[2])):
    begin = time.perf_counter()
    rollout = open_rollout(records, f"rollout-{number}")
    samples.append(time.perf_counter() - begin)
    tokens += rollout.trajectory.length
    rollout.leave()
seconds, busy = time.perf_counter() - start, time.process_time() - busy
print(json.dumps({"seconds": seconds, "busy": busy, "samples": samples, "tokens": tokens}))
"""


def recovery(place: Path, *, quick: bool) -> list[Figure]:
    """A new process opens many rollouts that another one left."""
    sessions, count = (100, 20) if quick else (1_000, 50)
    store = str(place / "many.db")
    records = onrecord.connect(store, project="bench")
    turns = [turn._replace(suffix=turn.suffix[:100], output=turn.output[:60], logprobs=turn.logprobs[:60])
             for turn in workload(count)]  # fmt: skip
    for number in range(sessions):
        rollout = open_rollout(records, f"rollout-{number}")
        _play(rollout, turns)
        rollout.leave()
    records.close()
    done = subprocess.run(
        [sys.executable, "-c", RECOVER, store, str(sessions)], capture_output=True, text=True, check=True
    )
    told = json.loads(done.stdout)
    assert told["tokens"] == sessions * count * 160
    median = statistics.median(told["samples"]) * 1e3
    slowest = max(told["samples"]) * 1e3
    detail = f"{sessions:,} rollouts of {count} turns in {told['seconds']:.1f} s, slowest {slowest:.0f} ms"
    return [
        Figure("rollout taken up by a fresh process, median", median, " ms", detail=detail),
        Figure("rollout taken up by a fresh process, processor time", told["busy"] / sessions * 1e3, " ms"),
    ]
