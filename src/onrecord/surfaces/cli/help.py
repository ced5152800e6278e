"""Help and version, made from the catalogue."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from onrecord import __version__
from onrecord.surfaces.cli.catalogue import EVERYDAY, find, shown
from onrecord.surfaces.cli.shared.exits import EXIT_CODES
from onrecord.surfaces.cli.verbs import Action, Option, Verb

if TYPE_CHECKING:
    from onrecord.surfaces.cli.shared.call import Call

ENVIRONMENT = {
    "ONRECORD_STORE": "the store: a path, sqlite:///relative.db, sqlite:////absolute.db or postgresql://host/db",
    "ONRECORD_TENANT": "the tenant of a store in PostgreSQL, if its URL names none",
    "ONRECORD_PROJECT": "the project (default: the repository of this directory)",
    "ONRECORD_SESSION": "the session (default: the project's only live session)",
    "ONRECORD_AGENT": "the agent that acts",
    "ONRECORD_CONFIG": "the settings file",
    "ONRECORD_KEY": "the key of encrypted stores: 64 hexadecimal digits",
    "ONRECORD_DEBUG": "1 prints a traceback for every error",
    "NO_COLOR": "any value turns colour off",
}
_FIRST_COLUMN = 26
_WIDEST = 100
_NARROW = 80


def version(call: Call) -> int:
    """The version; with --json also Python's."""
    if call.output.json:
        python = ".".join(map(str, sys.version_info[:3]))
        call.output.envelope("version", {"onrecord": __version__, "python": python})
    else:
        call.output.line(f"onrecord {__version__}")
    return 0


def show_help(call: Call) -> int:
    """The everyday verbs, one verb, or all of them."""
    if "VERB" in call.positional:
        verb = find(call.positional["VERB"])
        if call.output.json:
            call.output.envelope("help", verb_data(verb))
            return 0
        return help_of(verb, call.positional.get("ACTION", ""))
    if call.output.json:
        exits = {str(code): meaning for code, meaning in EXIT_CODES.items()}
        data = {"verbs": [verb_data(verb) for verb in shown()], "exits": exits, "environment": ENVIRONMENT}
        call.output.envelope("help", data)
        return 0
    sys.stdout.write(everything() if "all" in call else general())
    return 0


def help_of(verb: Verb, action: str = "") -> int:
    """The help of one verb, or of one of its actions."""
    chosen = next((one for one in verb.actions if one.name == action), None)
    if chosen is not None:
        sys.stdout.write(action_text(verb, chosen))
    else:
        sys.stdout.write(text_of(verb) if verb.group else general())
    return 0


def general() -> str:
    """What `onrecord --help` prints: one screen of 24 lines and 80 columns, the next prompt included."""
    known = {verb.name: verb.about for verb in shown()}
    lines = ["onrecord: durable sessions for AI agents", "usage: onrecord [VERB] [arguments] [options]", ""]
    lines.append(_wrapped(f"  {'(no verb)':<10} ", find("").about))
    lines += [_wrapped(f"  {name:<10} ", known[name]) for name in EVERYDAY]
    lines += ["", _wrapped("", "`onrecord VERB --help` explains a verb; `onrecord help --all` lists every verb.")]
    return "\n".join(lines) + "\n"


def everything() -> str:
    """What `onrecord help --all` prints: every verb by purpose, and the environment."""
    lines = ["onrecord: durable sessions for AI agents", ""]
    lines += ["usage: onrecord [VERB] [arguments] [options]", ""]
    group = ""
    for verb in shown():
        if verb.group != group:
            lines += ["", verb.group] if group else [verb.group]
            group = verb.group
        lines.append(_wrapped(f"  {verb.name:<12} ", verb.about))
    lines += ["", "Environment"]
    lines += [_wrapped(f"  {name:<17} ", about) for name, about in ENVIRONMENT.items()]
    lines += ["", _wrapped("", "`onrecord VERB --help` explains a verb; `onrecord help --json` prints JSON.")]
    return "\n".join(lines) + "\n"


def text_of(verb: Verb) -> str:
    """What `onrecord VERB --help` prints."""
    usage = f"onrecord {verb.name} {verb.usage}".rstrip()
    lines = [_wrapped("usage: ", f"{usage} [options]"), "", f"{verb.about}.", ""]
    options = verb.options_of("") if verb.actions else verb.options
    if verb.actions:
        room = max(len(one.name) for one in verb.actions)
        lines += [_wrapped(f"  {one.name:<{room}}  ", one.about) for one in verb.actions]
        each = f"`onrecord {verb.name} {verb.actions[0].name} --help` explains one of these, with its options."
        lines += ["", _wrapped("", each)]
        lines.append("")
    lines += [_option_line(option) for option in options]
    lines += [""] if options else []
    lines += [_option_line(option) for option in verb.general_options()]
    lines += ["", f"example: {verb.example}"]
    return "\n".join(lines) + "\n"


def action_text(verb: Verb, action: Action) -> str:
    """What `onrecord VERB ACTION --help` prints."""
    usage = f"onrecord {verb.name} {action.name} {action.usage}".rstrip()
    lines = [f"usage: {usage} [options]", "", f"{action.about}.", ""]
    for option in verb.options_of(action.name):
        named = ", ".join(verb.actions_of(option))
        lines.append(_option_line(option, f"{named}: " if named else ""))
    lines += ["", *(_option_line(option) for option in verb.general_options()), "", f"example: {action.example}"]
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


def _option_line(option: Option, without: str = "") -> str:
    names = f"{option.short}, {option.flag}" if option.short else f"    {option.flag}"
    value = "|".join(option.choices) if option.choices else option.value
    left = f"  {names} {value}".rstrip()
    about = option.about.removeprefix(without) + (" (repeatable)" if option.many else "")
    if len(left) > _NARROW:  # too many choices for one line
        left, about = f"  {names} {option.value}", f"{about}: {', '.join(option.choices)}"
    if len(left) > _FIRST_COLUMN:
        return f"{left}\n" + _wrapped(" " * (_FIRST_COLUMN + 2), about)
    return _wrapped(f"{left:<{_FIRST_COLUMN}}  ", about)


def _wrapped(start: str, text: str) -> str:
    """The text beside its start, wrapped between words."""
    from shutil import get_terminal_size
    from textwrap import wrap

    room = max(20, min(get_terminal_size().columns, _WIDEST) - len(start))
    return start + f"\n{' ' * len(start)}".join(wrap(text, room, break_on_hyphens=False) or [""])
