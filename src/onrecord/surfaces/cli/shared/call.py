"""One call of the command: its words, its store and session, and its output."""

from __future__ import annotations

import os
import sys

from onrecord.environment import AGENT_VARIABLE, SESSION_VARIABLE
from onrecord.surfaces.cli.shared.exits import Declined, NotInitialised, UsageError
from onrecord.surfaces.cli.shared.output import Output

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from onrecord.log.head import Head
    from onrecord.session.handle import Session
    from onrecord.session.session_store import SessionStore
    from onrecord.surfaces.cli.verbs import Option, Verb

CHOICES_SHOWN = 8
"""How many sessions an error names when it is not clear which one is meant."""


def wants_help(words: list[str]) -> bool:
    """Whether help is requested anywhere before a `--`."""
    before = words[: words.index("--")] if "--" in words else words
    return "-h" in before or "--help" in before


DIGITS_LIMIT = 15
"""The most digits of a whole number on the command line: every store keeps so many exactly."""


class Call:
    """The parsed words of one command; store and session are opened on demand."""

    def __init__(self, verb: Verb, words: list[str]) -> None:
        self.verb = verb
        self.given: list[tuple[str, str]] = []
        """Options in the order they were given, by name; for a switch the value is empty."""
        self.behind: list[str] = []
        """The words after `--`, of a verb that passes them on to an agent's program."""
        self.words = _parse(verb, words, self.given, self.behind)
        self.positional = _placed(verb, self.words)
        self.output = Output(json="json" in self, quiet="quiet" in self)
        self._records: SessionStore | None = None
        self.ask: Callable[[SessionStore], Head] | None = None
        """Lets the person choose one of several sessions; None without a terminal."""

    def __contains__(self, option: str) -> bool:
        return any(name == option for name, _value in self.given)

    def get(self, option: str) -> str | None:
        """The value of an option; the last one if it was given twice."""
        return next((value for name, value in reversed(self.given) if name == option), None)

    def many(self, option: str) -> list[str]:
        """Every value of an option, in order."""
        return [value for name, value in self.given if name == option]

    def number(self, option: str, default: int | None = None) -> int | None:
        """The value of an option as a whole number from 0 up."""
        text = self.get(option)
        return default if text is None else whole_number(text, f"--{option}")

    def amount(self, option: str) -> float | None:
        """The value of an option as a number."""
        text = self.get(option)
        return None if text is None else any_number(text, f"--{option}")

    def text(self, place: str) -> str:
        """A positional text; `-` means standard input."""
        value = self.positional[place]
        return sys.stdin.read().rstrip("\n") if value == "-" else value

    # The store

    def records(self, *, make: bool = True) -> SessionStore:
        """The store's sessions. With `make=False`, a missing store is an error and is not created."""
        if self._records is None:
            from onrecord.connection import connect, store_file

            url, project = self.get("store"), self.get("project")
            if not make:
                file = store_file(url)
                if file is not None and not os.access(file, os.F_OK):
                    raise NotInitialised(f"nothing is on record yet: there is no store at {from_home(file)}")
            if project:
                from onrecord.work.project import spelled_out

                project = spelled_out(project)
            self._records = connect(url, project=project)
        return self._records

    def records_for_new(self) -> SessionStore:
        """The store's sessions, for a command that makes one: a directory outside of a repository gets a name first."""
        from onrecord.connection import settings
        from onrecord.environment import PROJECT_VARIABLE

        chosen = self.get("project") or os.environ.get(PROJECT_VARIABLE) or settings().get("project")
        if self._records is None and not chosen and "stealth" not in self and not settings().get("stealth"):
            from onrecord.work.project import remember_directory

            remember_directory(os.curdir)
        return self.records()

    def close(self) -> None:
        """Close the store."""
        if self._records is not None:
            self._records.close()

    def now(self) -> int:
        """The present moment in microseconds."""
        return int(self.records().clock() * 1e6)

    def when(self, moment: int) -> str:
        """A moment as it is shown: local time on a terminal, UTC for programs."""
        if not self.output.terminal:
            from onrecord.views.render import iso

            return iso(moment)
        from onrecord.machine.wall_clock import local_time

        return local_time(moment, self.now())

    # The session

    def agent(self, default: str = "") -> str:
        """Who acts: an agent, or the person at work here."""
        return self.get("agent") or os.environ.get(AGENT_VARIABLE) or default or self.person()

    def person(self) -> str:
        """The name of the person at work here."""
        from onrecord.connection import store_url
        from onrecord.work.people import person

        return person(os.curdir, store_url(self.get("store")))

    def head(self) -> Head:
        """The chosen session: by name, --session, ONRECORD_SESSION, `onrecord use` here, or the only live one."""
        records = self.records(make=False)
        name = self.named()
        if not name:
            return self.used(records) or self._only_live(records)
        head = records.find(name)
        if name not in (head.name, head.session) and name.upper() != head.session:
            self.output.note(f"{name!r} matches {head.name} ({head.session})")
        return head

    def named(self) -> str | None:
        """The session that the command line or the environment names."""
        return self.positional.get("NAME") or self.get("session") or os.environ.get(SESSION_VARIABLE)

    def used(self, records: SessionStore) -> Head | None:
        """The live session that a person chose for this terminal."""
        if not any(os.isatty(stream) for stream in (0, 1, 2)):
            return None
        from onrecord.log.head import LIVE
        from onrecord.surfaces.cli.shared.terminals import used

        head = used(records)
        if head is not None and head.status not in LIVE:
            self.output.note(f"{head.name}, chosen for this terminal, is {head.status}; `onrecord use` chooses another")
            return None
        return head

    def session(self, *, agent: str = "") -> Session:
        """The chosen session, opened as the agent that acts. It takes no lease."""
        return self.records(make=False).handle(self.head().session, agent=self.agent(agent))

    def _only_live(self, records: SessionStore) -> Head:
        from onrecord.agents.sessions import at_work
        from onrecord.errors import AmbiguousName, SessionNotFound

        live = at_work(records, CHOICES_SHOWN + 1)
        if len(live) == 1:
            return live[0]
        if live and self.ask is not None:
            return self.ask(records)
        if not live:
            ended = ", ".join(head.name for head in records.sessions(limit=CHOICES_SHOWN))
            raise SessionNotFound(
                "this project has no live session",
                hint=f"name one of the others: {ended}" if ended else "start one: `onrecord open my-task`",
            )
        names = ", ".join(f"{head.name} ({head.status})" for head in live[:CHOICES_SHOWN])
        more = " and more" if len(live) > CHOICES_SHOWN else ""
        first = live[0].name
        named = f"onrecord {self.verb.name} {first}" if self.verb.takes == ("[NAME]",) else f"--session {first}"
        raise AmbiguousName(
            f"this project has {len(live) if not more else 'several'} live sessions: {names}{more}",
            hint=f"name one: `{named}`; or choose it for this terminal: `onrecord use {first}`",
        )

    # The person

    def confirm(self, question: str) -> None:
        """Continue only if the person agrees. Without a terminal, --yes is needed."""
        if "yes" in self:
            return
        if "no-input" in self or not (sys.stdin.isatty() and sys.stderr.isatty()):
            raise UsageError(f"this needs a confirmation: {question}", hint="add `--yes` to confirm it")
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        answer = ""
        try:
            answer = sys.stdin.readline()
        finally:
            if not answer.endswith("\n"):  # Ctrl-C or Ctrl-D: what follows starts on a line of its own
                sys.stderr.write("\n")
        if answer.strip().lower() not in ("y", "yes"):
            raise Declined("nothing was changed", hint="answer y, or add `--yes`")


def whole_number(text: str, what: str) -> int:
    """A whole number from 0 up."""
    if not (text.isascii() and text.isdigit()):
        raise UsageError(f"{what} must be a whole number, not {text!r:.60}")
    if len(text) > DIGITS_LIMIT:
        raise UsageError(f"{what} must have at most {DIGITS_LIMIT} digits, not {len(text):,}")
    return int(text)


def any_number(text: str, what: str) -> float:
    """A number from 0 up; whole ones stay whole."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf"):
        raise UsageError(f"{what} must be a number of at least 0, not {text!r}")
    return int(value) if value.is_integer() else value


def from_home(text: str | os.PathLike[str]) -> str:
    """A path, or a text with paths, as people read it: with a tilde for their own directory."""
    home = os.path.expanduser("~")  # noqa: PTH111  # every command loads this module
    return str(text).replace(f"{home}{os.sep}", "~/") if len(home) > 1 else str(text)


def pairs(values: list[str], what: str) -> list[tuple[str, str]]:
    """`KEY=VALUE` texts, split at the first equals sign."""
    found = [value.partition("=") for value in values]
    for key, equals, value in found:
        if not key or not equals:
            raise UsageError(f"{what} needs an equals sign; {key or value!r} has none")
    return [(key, value) for key, _equals, value in found]


def _parse(verb: Verb, words: list[str], given: list[tuple[str, str]], behind: list[str]) -> list[str]:
    """Split words into options (added to `given`) and positional ones (returned); see `Call.behind`."""
    known = {name: option for option in verb.all_options() for name in (option.flag, option.short) if name}
    plain: list[str] = []
    index = 0
    while index < len(words):
        word = words[index]
        index += 1
        if word == "--" and verb.passes_on:
            behind += words[index:]
            return plain
        if word == "--":
            return plain + words[index:]
        if not word.startswith("-") or word == "-":
            plain.append(word)
            continue
        flag, equals, value = word.partition("=")
        option = known.get(flag)
        if option is None:
            raise _unknown(verb, flag, list(known))
        if option.value and not equals:
            # An option here means that the value was forgotten; `--why=--quiet` passes it as the value.
            if index >= len(words) or words[index] in known:
                raise UsageError(f"{flag} needs a value: {flag} {option.value}")
            value = words[index]
            index += 1
        _accept(option, flag, value, has_value=bool(option.value or equals))
        given.append((option.name, value))
    return plain


def _accept(option: Option, flag: str, value: str, *, has_value: bool) -> None:
    if has_value and not option.value:
        raise UsageError(f"{flag} is a switch and takes no value")
    if option.choices and value not in option.choices:
        raise UsageError(f"{flag} must be one of {', '.join(option.choices)}, not {value!r}")


def _unknown(verb: Verb, flag: str, known: list[str]) -> UsageError:
    from onrecord.surfaces.cli.catalogue import nearest

    name = f"onrecord {verb.name}".rstrip()
    if verb.usage.endswith("COMMAND..."):
        return UsageError(f"{name} has no option {flag}", hint=f"put two dashes before the command: `{verb.example}`")
    # Every option has dashes, and a single letter is like half of all words: neither is a likeness.
    names = {one.lstrip("-"): one for one in known if one.startswith("--")}
    guess = names.get(nearest(flag.lstrip("-"), list(names)), "")
    return UsageError(
        f"{name} has no option {flag}",
        hint=f"did you mean `{guess}`?" if guess else None,
    )


def _placed(verb: Verb, words: list[str]) -> dict[str, str]:
    """Positional words by their names; an optional one is filled only when there are enough words for the others."""
    takes = verb.takes
    if takes and takes[-1].strip("[]").endswith("..."):
        if not words and not takes[-1].startswith("["):
            raise _missing(verb, verb.usage)
        return {}
    needed = sum(not name.startswith("[") for name in takes)
    if len(words) > len(takes):
        extra = words[len(takes)] if takes else words[0]
        # After a word that is chosen from a list no text was meant, but an option.
        hint = f"for example: `{verb.example}`" if "|" in verb.usage else "put quotes around text with spaces"
        raise UsageError(f"unexpected argument {extra!r}", hint=hint if takes else None)
    if len(words) < needed:
        raise _missing(verb, [name for name in verb.usage.split() if not name.startswith("[")][len(words)])
    placed: dict[str, str] = {}
    spare = len(words) - needed
    rest = iter(words)
    for name in takes:
        optional = name.startswith("[")
        if optional and not spare:
            continue
        spare -= optional
        placed[name.strip("[]")] = next(rest)
    return placed


def _missing(verb: Verb, usage: str) -> UsageError:
    """The error for the first word that the usage requires: an action, or an argument by its name."""
    if verb.actions:
        names = ", ".join(action.name for action in verb.actions)
        return UsageError(
            f"the action is missing; `onrecord {verb.name}` has {names}",
            hint=f"`onrecord {verb.name} --help` explains them; for example: `{verb.example}`",
        )
    name = next(word for word in usage.replace("-- ", "").split() if not word.startswith("[")).removesuffix("...")
    return UsageError(f"{name} is missing: onrecord {verb.name} {verb.usage}", hint=f"for example: `{verb.example}`")
