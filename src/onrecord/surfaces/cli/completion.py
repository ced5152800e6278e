"""Completion: the scripts of three shells, and the fast path they ask for verbs, options and session names."""

from __future__ import annotations

import os
import sys

from onrecord.surfaces.cli.catalogue import SHELLS, find, shown
from onrecord.surfaces.cli.shared.exits import UsageError
from onrecord.surfaces.cli.verbs import Option, Verb

TYPE_CHECKING = False
if TYPE_CHECKING:
    from onrecord.surfaces.cli.shared.call import Call

NAMES_OFFERED = 200
"""How many session names a shell is offered, the newest."""

BASH = """\
_onrecord() {
    local line
    COMPREPLY=()
    while IFS= read -r line; do
        COMPREPLY+=("$line")
    done < <(onrecord __complete "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -o bashdefault -o default -F _onrecord onrecord
"""

ZSH = """\
#compdef onrecord
_onrecord() {
    local -a found
    found=("${(@f)$(onrecord __complete "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ -n "${found[1]}" ]]; then
        compadd -- "${found[@]}"
    else
        _files
    fi
}
if [ "$funcstack[1]" = "_onrecord" ]; then
    _onrecord "$@"
else
    compdef _onrecord onrecord
fi
"""

FISH = """\
function __onrecord_complete
    set -l words (commandline -opc) (commandline -ct)
    set -l found (onrecord __complete $words[2..-1] 2>/dev/null)
    if test (count $found) -gt 0
        printf '%s\\n' $found
    else
        __fish_complete_path (commandline -ct)
    end
end
complete -c onrecord -f -a '(__onrecord_complete)'
"""

_SCRIPTS = dict(zip(SHELLS, (BASH, ZSH, FISH), strict=True))


def completion(call: Call) -> int:
    """Print the script of a shell."""
    shell = call.positional["SHELL"]
    if shell not in _SCRIPTS:
        raise UsageError(
            f"unknown shell {shell!r}; use {', '.join(SHELLS)}", hint="for example: `onrecord completion bash`"
        )
    if call.output.json:
        call.output.envelope("completion", {"shell": shell, "script": _SCRIPTS[shell]})
    else:
        call.output.write(_SCRIPTS[shell])
    return 0


def complete(words: list[str]) -> int:
    """Print what the last word may become, one per line. A shell never gets an error."""
    try:
        found = candidates(words or [""])
    except Exception:  # noqa: BLE001  # a broken store must not disturb a prompt; `onrecord doctor` reports it
        found = []
    sys.stdout.write("".join(f"{word}\n" for word in found))
    return 0


def candidates(words: list[str]) -> list[str]:
    """Completions of the last word, given the words before it."""
    from onrecord.surfaces.cli.words import split

    *before, current = words
    name, rest = split([word for word in before if word])
    if not name:
        return [verb.name for verb in shown() if verb.name.startswith(current)]
    verb = find(name)
    options = verb.all_options()
    if verb.actions and rest:
        options = tuple(one for one in options if one in verb.options_of(rest[0]) or one not in verb.options)
    pending = next((option for option in options if rest and rest[-1] in (option.flag, option.short)), None)
    if pending is not None and pending.value:
        return _begin(current, _values(pending))
    if current.startswith("-"):
        return _begin(current, [option.flag for option in options])
    return _begin(current, _positional(verb, rest))


def _begin(current: str, found: list[str]) -> list[str]:
    return [word for word in found if word.startswith(current)]


def _values(option: Option) -> list[str]:
    if option.choices:
        return list(option.choices)
    if option.value == "NAME":
        return _names()
    if option.value == "KIND":
        from onrecord.log.events import KINDS

        return list(KINDS)
    return []


def _positional(verb: Verb, rest: list[str]) -> list[str]:
    if verb.name == "help":
        return [other.name for other in shown()]
    if verb.name == "completion":
        return list(SHELLS)
    if verb.actions and not rest:
        return [action.name for action in verb.actions]
    takes_name = any("NAME" in part for part in (*verb.takes, verb.usage))
    given = [word for word in rest if not word.startswith("-")]
    return _names() if takes_name and not given else []


def _names() -> list[str]:
    """Names of this project's sessions, newest first; completion never creates a store."""
    from onrecord.connection import connect, store_file

    file = store_file()
    if file is not None and not os.access(file, os.F_OK):
        return []
    with connect() as records:
        return [head.name for head in records.sessions(limit=NAMES_OFFERED)]
