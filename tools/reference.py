"""Writes docs/reference/ and the types of onrecord.aio from the code. `--check` fails when they differ from it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

from aio_stub import stub
from python_page import python_page

from onrecord import errors
from onrecord.connection import NOTICES
from onrecord.environment import CONFIG_VARIABLE, KEY_VARIABLE, PROJECT_VARIABLE, STORE_VARIABLE, TENANT_VARIABLE
from onrecord.log.events import KINDS
from onrecord.session.retention import Policy
from onrecord.surfaces.cli.catalogue import shown
from onrecord.surfaces.cli.shared.exits import EXIT_CODES, exit_code_of

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "onrecord"
TARGET = ROOT / "docs" / "reference"
NOTICE = "<!-- Written by tools/reference.py from the code. Do not edit. -->\n"


def events_page() -> str:
    rows = [
        f"| `{kind.name}` | {kind.tier} | {kind.version} | {kind.needs.replace(' ', ', ')} | {kind.meaning} |"
        for kind in KINDS.values()
    ]
    return "\n".join(
        [
            "# Events",
            "",
            "Every kind of event, its tier, the version of its payload and the fields it needs. Kinds are stable.",
            "Compaction and retention can touch only the transcript tier.",
            "",
            "| kind | tier | v | needs | meaning |",
            "|---|---|---|---|---|",
            *rows,
        ]
    )


def errors_page() -> str:
    rows = [
        f"| `{kind.__name__}` | `{kind.code}` | {'yes' if kind.retryable else 'no'} | {exit_code_of(kind.code)} "
        f"| {_first_line(kind)} | {kind.hint or '(depends)'} |"
        for kind in _tree(errors.OnrecordError)
    ]
    codes = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
    return "\n".join(
        [
            "# Errors",
            "",
            "One tree (`onrecord.errors`). `code` is stable for programs, `hint` is the usual next step; a retryable",
            "error may go away without any change.",
            "",
            "| class | code | retryable | exit code | meaning | usual hint |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            "## Exit codes",
            "",
            "| code | meaning |",
            "|---|---|",
            *codes,
        ]
    )


def limits_page() -> str:
    rows = [f"| `{name}` | `{module}` | {value} | {meaning} |" for module, name, value, meaning in sorted(_limits())]
    return "\n".join(
        [
            "# Limits",
            "",
            "Every limit is a named constant in the module that enforces it.",
            "",
            "| limit | module | value | meaning |",
            "|---|---|---|---|",
            *rows,
        ]
    )


def settings_page() -> str:
    policy = [f"| `retention.{name}` | {default} |" for name, default in Policy()._asdict().items()]
    return "\n".join(
        [
            "# Settings",
            "",
            "The configuration is a TOML file: `$XDG_CONFIG_HOME/onrecord/config.toml`, or what the variable says.",
            "An unknown setting is an error, not a surprise.",
            "",
            "| variable | meaning |",
            "|---|---|",
            f"| `{STORE_VARIABLE}` | the store: a path, `sqlite:///x.db`, `postgresql://host/database`, `memory:` |",
            f"| `{TENANT_VARIABLE}` | whose sessions are meant, of a store in PostgreSQL whose URL does not say |",
            f"| `{PROJECT_VARIABLE}` | the project, instead of the repository of the working directory |",
            f"| `{CONFIG_VARIABLE}` | the configuration file |",
            "| `ONRECORD_SESSION` | the session a command is about |",
            "| `ONRECORD_AGENT` | the agent a command acts for |",
            "| `ONRECORD_AUTO` | `1` or `0`: whether conversations are recorded without `onrecord start` |",
            "| `ONRECORD_FOLLOW` | `0`: hooks start no process that copies a conversation while it grows |",
            f"| `{KEY_VARIABLE}` | the key of encrypted stores: 64 hexadecimal digits (docs/guide/keys.md) |",
            "| `ONRECORD_DEBUG` | `1` shows the traceback of an unexpected error |",
            "| `NO_COLOR` | no colour |",
            "",
            "| setting | default |",
            "|---|---|",
            "| `store` | one file in `$XDG_DATA_HOME/onrecord/` |",
            "| `project` | the repository of the working directory |",
            "| `auto_register` | false; true records every conversation of agents that are set up |",
            "| `auto_register_in` | the projects in which every conversation is recorded |",
            "| `auto_register_not_in` | the projects in which that is off, whatever the other two say |",
            "| `follow` | true: hooks start a small process that copies a conversation while it grows |",
            "| `stealth` | false; true keeps STATE.md and NOTE.md out of the repository, beside the store |",
            *policy,
            "| `secrets.policy` | `redact`; `refuse` or `keep` (docs/guide/secrets.md) |",
            "| `secrets.redact_in`, `secrets.refuse_in`, `secrets.keep_in` | projects with another policy |",
            "| `secrets.environment` | true: values of secret variables and .env files are secrets everywhere |",
            "| `secrets.personal` | false; true also replaces mail addresses, phone, card and account numbers |",
            "| `secrets.rules` | none; tables with `kind`, `pattern` and `keywords` |",
            "| `secrets.allow` | none; patterns of values that are no secrets |",
            "| `encryption.file` | none; the file of the key of encrypted stores, which only you may read |",
            "| `encryption.command` | none; a list of words: a program that prints the key |",
            "| `encryption.keyring` | none; the name of the key in the system's keyring |",
            "| `session_keys.directory` | beside a store in a file; where the keys of single sessions are |",
            "| `session_keys.file`, `.command`, `.keyring` | those of `encryption`; the key that they are kept under |",
            "| `bundles.identity` | none; the age identity or SSH key that decrypts bundles |",
            "| `bundles.signers` | the file `allowed_signers` beside this one: who may sign bundles, as in OpenSSH |",
            "| `notify.bell` | false; true rings the terminal's bell |",
            "| `notify.desktop` | false; true shows a message on the desktop, or through the terminal |",
            "| `notify.command` | none; a list of words: a program that gets each notice as JSON on standard input |",
            f"| `notify.events` | all of {', '.join(f'`{one}`' for one in NOTICES)} |",
            "",
            "Retention is in days without activity; a negative number means never. `onrecord sweep` applies it, and",
            "nothing else does: nothing is erased behind your back.",
        ]
    )


def cli_page() -> str:
    parts = ["# Command line", "", "```console", "$ onrecord help", _onrecord("help"), "```"]
    for verb in shown():
        for words in ([verb.name], *([verb.name, action.name] for action in verb.actions)):
            name = " ".join(words)
            parts += [
                "",
                f"## {name}",
                "",
                "```console",
                f"$ onrecord {name} --help",
                _onrecord(*words, "--help"),
                "```",
            ]
    return "\n".join(parts)


def schema_page() -> str:
    parts = ["# Schemas"]
    for name, store in (("SQLite", "sqlite"), ("PostgreSQL", "postgres")):
        schema = (SOURCE / "stores" / "sql" / store / "schema.sql").read_text()
        parts.append(f"## The {name} store\n\n```sql\n{schema.rstrip()}\n```")
    return "\n\n".join(parts)


def _onrecord(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "onrecord", *arguments],
        capture_output=True, text=True, check=True,
        env={"COLUMNS": "100", "NO_COLOR": "1", "PATH": "", "PYTHONPATH": str(SOURCE.parent)},
    )  # fmt: skip
    return done.stdout.rstrip()


def _first_line(kind: type) -> str:
    return (kind.__doc__ or "").partition("\n")[0]


def _tree(kind: type[errors.OnrecordError]) -> Iterator[type[errors.OnrecordError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _tree(below)


def _limits() -> Iterator[tuple[str, str, str, str]]:
    """A limit is an upper-case constant with a docstring of its own."""
    for path in sorted(SOURCE.rglob("*.py")):
        body = ast.parse(path.read_text()).body
        for statement, following in pairwise(body):
            match statement, following:
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value),
                    ast.Expr(value=ast.Constant(value=str(meaning))),
                ) if name.isupper() and _number(value):
                    module = ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts)
                    yield module, name, _number(value), " ".join(meaning.split())


def _number(node: ast.expr) -> str:
    try:
        value = eval(compile(ast.Expression(node), "limit", "eval"), {"__builtins__": {}})  # noqa: S307 - our own source
    except Exception:  # noqa: BLE001 - whatever it is, it is no plain number
        return ""
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else ""


PAGES = {
    "events.md": events_page,
    "errors.md": errors_page,
    "limits.md": limits_page,
    "settings.md": settings_page,
    "cli.md": cli_page,
    "schema.md": schema_page,
    "python.md": python_page,
}


def main() -> int:
    check = "--check" in sys.argv[1:]
    TARGET.mkdir(parents=True, exist_ok=True)
    files = {TARGET / name: NOTICE + "\n" + page() + "\n" for name, page in PAGES.items()}
    files[SOURCE / "aio" / "__init__.pyi"] = stub()
    stale = [path for path, text in files.items() if not path.exists() or path.read_text() != text]
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        print(f"not what the code says: {names}. Run: python tools/reference.py")
        return 1
    for path in stale:
        path.write_text(files[path])
    print(f"reference: {'in step with the code' if check else f'{len(stale)} of {len(files)} files written'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
