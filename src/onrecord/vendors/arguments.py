"""The user's own arguments of a vendor's program: which of an earlier run are used again, and what replaces them.

`start claude -- --model opus` is on record; a resume uses these arguments again, and arguments given then replace
those of the same flag. To tell a flag's value from a prompt, the flags are listed here as each program's help has them.
A flag that is not listed takes one value, unless a flag follows it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

SECRET = re.compile(r"(api[-_]?key|secret|password|(bearer|auth|access)[-_]?token|^--token)$", re.IGNORECASE)
"""A flag whose value is a secret: it is not recorded, so it has to be given again."""


class Flags(NamedTuple):
    """The flags of one program, each field a text of names."""

    switches: str = ""
    """They take no value."""
    lists: str = ""
    """They take any number of values; given again, they add to what is there."""
    adding: str = ""
    """They take one value; given again, they add to what is there."""
    once: str = ""
    """They belong to one prompt or one run, and are not used again."""
    headless: str = ""
    """The program knows them only without a terminal."""
    terminal: str = ""
    """The program knows them only on a terminal."""
    same: str = ""
    """`-m=--model`: two flags that set the same thing, so that one replaces the other."""


FLAGS = {
    "claude": Flags(
        switches="--allow-dangerously-skip-permissions --ax-screen-reader --bare --brief --chrome "
        "--no-chrome --dangerously-skip-permissions --disable-slash-commands "
        "--exclude-dynamic-system-prompt-sections --forward-subagent-text --ide "
        "--include-hook-events --include-partial-messages --no-session-persistence -p --print "
        "--replay-user-messages --restricted --safe-mode --strict-mcp-config --tmux --verbose "
        "--bg --background --desktop -h --help -v --version",
        lists="--add-dir --allowedTools --allowed-tools --betas --disallowedTools --disallowed-tools "
        "--file --mcp-config --tools",
        adding="--plugin-dir --plugin-url",
        once="-p --print --file -n --name --bg --background --cloud --desktop --teleport -w --worktree "
        "--environment -h --help -v --version",
        headless="--output-format --input-format --include-partial-messages --include-hook-events "
        "--replay-user-messages --forward-subagent-text --json-schema --max-budget-usd "
        "--permission-prompts",
        terminal="--tmux --ide",
        same="--allowed-tools=--allowedTools --disallowed-tools=--disallowedTools -d=--debug "
        "--dangerously-skip-permissions=--permission-mode",
    ),
    "codex": Flags(
        switches="--strict-config --oss --approve-for-me --dangerously-bypass-approvals-and-sandbox "
        "--dangerously-bypass-hook-trust --worktree --search --no-alt-screen --no-daemon "
        "--skip-git-repo-check --ephemeral --ignore-user-config --ignore-rules --json -h --help "
        "-V --version",
        lists="-i --image",
        adding="-c --config --enable --disable --add-dir",
        once="-i --image --worktree -h --help -V --version",
        headless="--skip-git-repo-check --ephemeral --ignore-user-config --ignore-rules --output-schema "
        "--color --json -o --output-last-message --thread-source --cyber-access-program",
        terminal="--remote --remote-auth-token-env -a --ask-for-approval --search --no-alt-screen "
        "--no-daemon",
        same="-c=--config -m=--model -p=--profile -s=--sandbox -C=--cd -a=--ask-for-approval "
        "-o=--output-last-message",
    ),
    "gemini": Flags(
        switches="-d --debug --skip-trust -s --sandbox -y --yolo --acp --experimental-acp -l "
        "--list-extensions --screen-reader --raw-output --accept-raw-output-risk -v --version -h "
        "--help",
        lists="--policy --admin-policy --allowed-mcp-server-names --allowed-tools -e --extensions "
        "--include-directories",
        once="-p --prompt -i --prompt-interactive -w --worktree -l --list-extensions -v --version -h "
        "--help",
        headless="-o --output-format",
        same="-d=--debug -m=--model -s=--sandbox -y=--approval-mode --yolo=--approval-mode -e=--extensions "
        "-o=--output-format",
    ),
    "qwen": Flags(
        switches="--telemetry --telemetry-log-prompts -d --debug --bare --safe-mode --insecure "
        "--chat-recording -s --sandbox -y --yolo --acp --experimental-lsp "
        "--restore-ask-user-question -l --list-extensions --openai-logging --screen-reader "
        "--include-partial-messages -v --version -h --help",
        lists="--allowed-mcp-server-names --allowed-tools -e --extensions --include-directories --add-dir "
        "--core-tools --exclude-tools",
        adding="--mcp-config --disabled-slash-commands",
        once="-p --prompt -i --prompt-interactive --worktree -l --list-extensions -v --version -h --help",
        headless="-o --output-format --input-format --include-partial-messages --json-schema "
        "--max-wall-time",
        same="-d=--debug -m=--model -s=--sandbox -y=--approval-mode --yolo=--approval-mode -e=--extensions "
        "-o=--output-format --add-dir=--include-directories",
    ),
    "copilot": Flags(
        switches="--fleet --trust-folder -s --silent --disable-client-telemetry --enable-memory "
        "--allow-all-tools --allow-all-paths --disallow-temp-dir --banner --screen-reader "
        "--plain-diff --share-gist --disable-builtin-mcps --enable-all-github-mcp-tools "
        "--allow-all-mcp-server-instructions --allow-all-urls --allow-all --yolo --autopilot "
        "--plan --experimental --acp --remote --remote-export --assisted-approval "
        "--no-custom-instructions --no-auto-update --no-ask-user --no-color --no-experimental "
        "--no-bash-env --no-mouse --no-remote --no-remote-export --no-eager-powershell-resolution "
        "-v --version -h --help",
        lists="--allow-tool --deny-tool --available-tools --excluded-tools --secret-env-vars --allow-url "
        "--deny-url",
        adding="--add-dir --disable-mcp-server --enable-mcp-server --add-github-mcp-toolset "
        "--add-github-mcp-tool --plugin-dir --additional-mcp-config --mcp-github-auth "
        "--dynamic-retrieval",
        once="-i --interactive -p --prompt -n --attachment --share --share-gist -v --version -h --help",
        headless="-s --silent --output-format --usage-output-file",
        terminal="--banner",
    ),
    "opencode": Flags(
        switches="--print-logs --pure --mdns --auto --mini --no-replay --share --thinking -i --interactive "
        "-v --version -h --help",
        lists="--cors -f --file",
        once="--prompt --command -f --file --title --share -i --interactive -v --version -h --help",
        headless="--format --attach --variant --thinking -u --username",
        terminal="--mini --no-replay --replay-limit --hostname --mdns --mdns-domain --cors",
        same="-m=--model",
    ),
    "cursor": Flags(
        switches="-p --print -f --force --trust --stream-partial-output --background --fullscreen "
        "--approve-mcps -h --help -v --version",
        adding="-H --header",
        once="-p --print --background -h --help -v --version",
        headless="--output-format --stream-partial-output",
        same="-m=--model -f=--force",
    ),
}  # fmt: skip


class _Part(NamedTuple):
    """A flag with its values."""

    flag: str
    words: tuple[str, ...]


def recordable(vendor: str, words: Sequence[str], has_secret: Callable[[str], bool] = lambda _text: False) -> list[str]:
    """The arguments as they are recorded: only flags and their values, and no secret, so that a log never has one.

    A flag whose value has one is left out as a whole: a program could not use a placeholder.
    """
    parts = _parts(FLAGS.get(vendor, Flags()), words)
    named = [part for part in parts if not any(SECRET.search(name) for name in _names(part))]
    return [word for part in named if not has_secret(" ".join(part.words)) for word in part.words]


def _names(part: _Part) -> list[str]:
    """The names that a flag sets: its own, and the key of a `key=value`."""
    return [part.flag, *(key for word in part.words for key, equals, _value in [word.partition("=")] if equals)]


def taken_out(vendor: str, words: Sequence[str], flags: Collection[str]) -> tuple[list[str], list[str]]:
    """Some flags with their values, and all other words."""
    taken = [one for one in _parts(FLAGS.get(vendor, Flags()), words) if one.flag in flags]
    rest = list(words)
    for one in taken:
        at = next(i for i in range(len(rest)) if tuple(rest[i : i + len(one.words)]) == one.words)
        del rest[at : at + len(one.words)]
    return [word for one in taken for word in one.words], rest


def again(
    vendor: str, recorded: Sequence[str], given: Sequence[str] = (), *, headless: bool | None = None
) -> list[str]:
    """The arguments of another run: the recorded ones that still apply, and those that are given now.

    With `headless` True or False, those that the program does not know without (or on) a terminal are left out.
    """
    flags = FLAGS.get(vendor, Flags())
    unknown = {True: flags.terminal, False: flags.headless, None: ""}[headless]
    dropped = {*flags.once.split(), *unknown.split()}
    same = dict(pair.split("=") for pair in flags.same.split())
    adding = {*flags.lists.split(), *flags.adding.split()}
    now = _parts(flags, given)
    replaced = {same.get(one.flag, one.flag) for one in now if one.flag not in adding}
    keyed = {_key(one, same) for one in now if one.flag in adding}
    kept: list[str] = []
    for one in _parts(flags, recorded):
        flag = same.get(one.flag, one.flag)
        if one.flag not in dropped and flag not in replaced and _key(one, same) not in keyed:
            kept += one.words
    return [*kept, *given]


def _parts(flags: Flags, words: Sequence[str]) -> list[_Part]:
    """The flags with their values. Words that belong to no flag are a prompt and left out, like all after `--`."""
    switches, lists = {*flags.switches.split()}, {*flags.lists.split()}
    found: list[_Part] = []
    index = 0
    before = list(words[: list(words).index("--")] if "--" in words else words)
    while index < len(before):
        word = before[index]
        index += 1
        if not _is_flag(word):
            continue
        flag, equals, _value = word.partition("=")
        most = 0 if equals or flag in switches else len(before) if flag in lists else 1
        end = index
        while end < len(before) and end - index < most and not _is_flag(before[end]):
            end += 1
        found.append(_Part(flag, tuple(before[index - 1 : end])))
        index = end
    return found


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-") and not word[1:].replace(".", "", 1).isdigit()


def _key(part: _Part, same: dict[str, str]) -> tuple[str, ...]:
    """What makes a repeated flag the same one: `-c key=value` is known by its key, others by their values."""
    flag, equals, attached = part.words[0].partition("=")
    values = [attached] if equals else list(part.words[1:])
    return (same.get(flag, flag), *(value.partition("=")[0] for value in values))
