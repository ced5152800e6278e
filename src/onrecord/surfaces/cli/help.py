"""Help and version, made from the catalogue."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from onrecord import __version__
from onrecord.surfaces.cli.catalogue import EVERYWHERE, Option, Verb, find, shown
from onrecord.surfaces.cli.shared.exits import EXIT_CODES

if TYPE_CHECKING:
    from onrecord.surfaces.cli.shared.call import Call

ENVIRONMENT = {
    "ONRECORD_STORE": "the store: a path, sqlite:///relative.db, sqlite:////absolute.db or postgresql://host/db",
    "ONRECORD_TENANT": "whose sessions are meant, of a store in PostgreSQL whose URL does not say",
    "ONRECORD_PROJECT": "the project, instead of the repository of this directory",
    "ONRECORD_SESSION": "the session, instead of the project's only live one",
    "ONRECORD_AGENT": "who acts",
    "ONRECORD_CONFIG": "the settings file",
    "ONRECORD_DEBUG": "1 shows where an error came from",
    "NO_COLOR": "anything switches colour off",
}
_FIRST_COLUMN = 26
_WIDEST = 100


def version(call: Call) -> int:
    """The version, and with --json those it runs on."""
    if call.output.json:
        python = ".".join(map(str, sys.version_info[:3]))
        call.output.envelope("version", {"onrecord": __version__, "python": python})
    else:
        call.output.line(f"onrecord {__version__}")
    return 0


def show_help(call: Call) -> int:
    """All verbs by purpose, or one."""
    if "VERB" in call.positional:
        verb = find(call.positional["VERB"])
        if call.output.json:
            call.output.envelope("help", verb_data(verb))
            return 0
        return help_of(verb)
    if call.output.json:
        exits = {str(code): meaning for code, meaning in EXIT_CODES.items()}
        data = {"verbs": [verb_data(verb) for verb in shown()], "exits": exits, "environment": ENVIRONMENT}
        call.output.envelope("help", data)
        return 0
    sys.stdout.write(general())
    return 0


def help_of(verb: Verb) -> int:
    """The help of one verb."""
    sys.stdout.write(text_of(verb) if verb.group else general())
    return 0


def general() -> str:
    """What `onrecord help` prints."""
    lines = ["onrecord: durable sessions for AI agents. If it isn't on record, it didn't happen.", ""]
    lines += ["usage: onrecord VERB [arguments] [--json]", "       onrecord          the sessions of this project", ""]
    group = ""
    for verb in shown():
        if verb.group != group:
            lines += ["", verb.group] if group else [verb.group]
            group = verb.group
        lines.append(_wrapped(f"  {verb.name:<11} ", verb.about))
    lines += ["", "Environment"]
    lines += [_wrapped(f"  {name:<17} ", about) for name, about in ENVIRONMENT.items()]
    lines += [
        "",
        "onrecord VERB --help tells more about one, onrecord help --json everything, exit codes included.",
    ]
    return "\n".join(lines) + "\n"


def text_of(verb: Verb) -> str:
    """What `onrecord VERB --help` prints."""
    usage = f"onrecord {verb.name} {verb.usage}".rstrip()
    lines = [f"usage: {usage} [options]", "", f"{verb.about}.", ""]
    lines += [_option_line(option) for option in verb.options]
    lines += [""] if verb.options else []
    lines += [_option_line(option) for option in EVERYWHERE]
    lines += ["", f"example: {verb.example}"]
    return "\n".join(lines) + "\n"


def verb_data(verb: Verb) -> dict[str, object]:
    """A verb as data, for agents and for the reference."""
    options = [
        {
            "flag": option.flag, "short": option.short, "value": option.value, "choices": list(option.choices),
            "many": option.many, "about": option.about,
        }
        for option in verb.all_options()
    ]  # fmt: skip
    return {
        "name": verb.name, "group": verb.group, "usage": f"onrecord {verb.name} {verb.usage}".rstrip(),
        "about": verb.about, "example": verb.example, "options": options,
    }  # fmt: skip


def _option_line(option: Option) -> str:
    names = f"{option.short}, {option.flag}" if option.short else f"    {option.flag}"
    value = "|".join(option.choices) if option.choices else option.value
    left = f"  {names} {value}".rstrip()
    about = option.about + (" (may be given more than once)" if option.many else "")
    if len(left) > _FIRST_COLUMN:
        return f"{left}\n" + _wrapped(" " * (_FIRST_COLUMN + 2), about)
    return _wrapped(f"{left:<{_FIRST_COLUMN}}  ", about)


def _wrapped(start: str, text: str) -> str:
    """The text beside its start, wrapped between words."""
    from shutil import get_terminal_size
    from textwrap import wrap

    room = max(20, min(get_terminal_size().columns, _WIDEST) - len(start))
    return start + f"\n{' ' * len(start)}".join(wrap(text, room) or [""])
