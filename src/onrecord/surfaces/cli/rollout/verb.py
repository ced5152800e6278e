"""Rollouts on the command line: serve the proxy that records them, and export samples for a trainer."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.errors import AssemblyFailed, DamagedLog, PayloadErased
from onrecord.rollout.branches import is_continued
from onrecord.rollout.recording import POLICY_AGENT, check_chain, lane_samples, read_lane
from onrecord.rollout.trainers import lines
from onrecord.rollout.writing import pieces, writer
from onrecord.surfaces.cli.shared.exits import OK, PARTIAL, UsageError
from onrecord.surfaces.cli.shared.files import refuse_existing, write_file
from onrecord.surfaces.cli.shared.output import Cell, counted
from onrecord.surfaces.cli.shared.place import act
from onrecord.surfaces.cli.upkeep.prove import Progress, all_heads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from onrecord.log.head import Head
    from onrecord.rollout.lane import Lane
    from onrecord.rollout.samples import Sample
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.shared.call import Call


CONTINUED = "continued"
"""Why `--all` leaves out a rollout that a branch continues: its turns are in the samples of that branch."""

_USUAL: dict[str, Any] = {"merge": True, "max_seq_len": None, "past_length": False}
"""The options of samples that were frozen without any."""


def rollout(call: Call) -> int:
    """Do what the first word says."""
    _refuse_other_options(call)
    return act(call, {"export": _export, "serve": _serve})


def _refuse_other_options(call: Call) -> None:
    """Refuse options of the other action: they would have no effect, and the user would not notice."""
    action = next(iter(call.words), "")
    for option in call.verb.options:
        belongs = call.verb.actions_of(option)
        if belongs and action in ("serve", "export") and action not in belongs and option.flag[2:] in call:
            raise UsageError(
                f"`onrecord rollout {action}` has no option {option.flag}; `onrecord rollout {belongs[0]}` has it",
                hint=f"`onrecord rollout {action} --help` lists the options",
            )


def _serve(call: Call, words: list[str]) -> int:
    from onrecord.surfaces.cli.rollout.serve import serve

    return serve(call, words)


def _export(call: Call, names: list[str]) -> int:
    target = call.get("to")
    if not target:
        raise UsageError("--to FILE is missing", hint=f"for example: `{call.verb.example}`")
    path, trainer = Path(target).expanduser(), call.get("for")
    if trainer is None:
        writer(path.suffix)
    elif path.suffix != ".jsonl":
        raise UsageError(
            f"--for {trainer} writes JSON Lines, not {path.suffix or 'a file without a suffix'}",
            hint=f"for example: `onrecord rollout export --all --for {trainer} --to samples.jsonl`",
        )
    refuse_existing(path, force="force" in call)
    if bool(names) == ("all" in call):
        raise UsageError("name sessions, or use --all", hint=f"for example: `{call.verb.example}`")
    records = call.records(make=False)
    heads = all_heads(records) if "all" in call else map(records.find, names)
    # A session that is named twice, or by its name and its id, is one session: a trainer must not see it twice.
    told = _Told(call, list({head.session: head for head in heads}.values()))
    made = pieces(told.samples(), path.suffix) if trainer is None else lines(trainer, told.samples())
    write_file(target, made, force="force" in call)
    return told.report(path)


class _Told:
    """Reads one session after the other and counts its samples and tokens."""

    def __init__(self, call: Call, heads: list[Head]) -> None:
        self._call = call
        self._heads = heads
        self._agent = call.agent(POLICY_AGENT)
        self._options: dict[str, Any] = {"merge": "turns" not in call, "max_seq_len": call.number("max-seq-len")}
        self._options["past_length"] = "past-length" in call
        self.tokens = self.count = 0
        self.statuses: dict[str, int] = {}
        self.without: dict[str, str] = {}
        """Sessions without a sample, and why."""
        self.skipped: dict[str, str] = {}
        """Sessions that `--all` leaves out, and why: acknowledged, retired, or continued by a branch."""
        self.branches: dict[str, int] = {}
        """How many branches, not named themselves, a session has."""
        self.as_frozen: list[str] = []
        """Sessions that were frozen with other options than those of this command."""
        self.damaged: list[str] = []
        self.discarded = 0

    def samples(self) -> Iterator[Sample]:
        """The samples of all sessions."""
        records, progress = self._call.records(), Progress(self._call, "sessions exported")
        for done, head in enumerate(self._heads, 1):
            session = records.handle(head.session, agent=self._agent)
            try:
                lane = read_lane(session, self._agent)
                if "all" in self._call and (why := self._left_out(records, head, lane)):
                    self.skipped[head.name] = why
                    continue
                if "all" not in self._call:
                    self._note_branches(records, head)
                check_chain(session)
                self._note_frozen(head, lane)
                for sample in lane_samples(session, lane, **self._options):
                    self._count(sample)
                    yield sample
            except (AssemblyFailed, PayloadErased, DamagedLog) as problem:
                self.without[head.name] = str(problem)
                if isinstance(problem, DamagedLog):
                    self.damaged.append(head.name)
            progress(done, len(self._heads))
        progress.finish()

    def _left_out(self, records: SessionStore, head: Head, lane: Lane) -> str:
        if lane.acknowledged or lane.retired is not None:
            return "acknowledged" if lane.acknowledged else "retired"
        if is_continued(records, head, lane, self._agent):
            self.discarded += sum(lane.discarded)
            return CONTINUED
        return ""

    def _note_branches(self, records: SessionStore, head: Head) -> None:
        named = {one.session for one in self._heads}
        count = sum(child.session not in named for child in records.children(head.session))
        if count:
            self.branches[head.name] = count

    def _note_frozen(self, head: Head, lane: Lane) -> None:
        asked = any(name in self._call for name in ("turns", "max-seq-len", "past-length"))
        if asked and lane.frozen is not None and self._options != _USUAL | lane.frozen.options:
            self.as_frozen.append(head.name)

    def _count(self, sample: Sample) -> None:
        self.count += 1
        self.tokens += len(sample.tokens)
        self.discarded += sample.discarded_tokens
        self.statuses[sample.status] = self.statuses.get(sample.status, 0) + 1

    def report(self, path: Path) -> int:
        """What was written, and what was not."""
        data = {
            "file": str(path), "bytes": path.stat().st_size, "sessions": len(self._heads), "samples": self.count,
            "tokens": self.tokens, "statuses": self.statuses, "without": self.without,
            "skipped": self.skipped, "branches": self.branches, "discarded_tokens": self.discarded,
        }  # fmt: skip
        sessions = len(self._heads) - len(self.without) - len(self.skipped)
        amount = f"{counted(self.count, 'sample')}, {counted(self.tokens, 'token')} of {counted(sessions, 'session')}"
        sentence = f"wrote {amount}, to {path}"
        self._call.output.done("rollout_export", data, sentence)
        if not self._call.output.json and not self._call.output.quiet:
            self._call.output.table(
                ("!status", ">samples"), [[Cell(s, "strong"), str(n)] for s, n in self.statuses.items()]
            )
        if self.as_frozen:
            others = len(self.as_frozen) - 1
            first = self.as_frozen[0] + (f" and {others:,} more" if others else "")
            self._call.output.note(
                f"{first}: frozen with other options, which are kept; --turns, --max-seq-len and "
                "--past-length have no effect there"
            )
        if self.discarded:
            self._call.output.note(
                f"{counted(self.discarded, 'sampled token')} on record are in no sample: their turns were replaced, "
                "follow an unfinished turn or did not fit"
            )
        continued = list(self.skipped.values()).count(CONTINUED)
        if ended := len(self.skipped) - continued:
            named = counted(ended, "session")
            self._call.output.note(f"left out {named} that were handed over or deleted; name one to export it")
        if continued:
            self._call.output.note(f"left out {counted(continued, 'session')} whose turns are in samples of branches")
        for name, count in self.branches.items():
            self._call.output.note(
                f"{name} has {counted(count, 'branch', 'branches')} that you did not name; --all exports every branch"
            )
        # With --all, many sessions of a store are not rollouts; but a damaged one is always named.
        missing = self.damaged if "all" in self._call else list(self.without)
        for name in missing:
            self._call.output.note(f"{name}: {self.without[name]}")
        return PARTIAL if missing else OK
