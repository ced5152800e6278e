"""Tortures session stores, each in an environment of its own, and writes the table of docs/torture.md.

    ./dev torture                        every store
    ./dev torture langgraph adk-sqlite   some of them
    ./dev torture --attack flipped_bit   one attack on every store
    ./dev torture --write                the results go into docs/torture.md too

Not part of CI: it installs the frameworks from the registry and takes a while.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any, NamedTuple

import frameworks
from marked import write_table

from onrecord.testing.torture import ATTACKS

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / ".torture"
PAGE = ROOT / "docs" / "torture.md"
RESULTS = ROOT / "docs" / "torture.json"
DAMAGE = ("flipped_bit", "poison")
"""The attacks that damage a store: what its check on demand finds is shown beside what a read notices."""
DRIVERS = "onrecord.testing.torture.drivers"


class Store(NamedTuple):
    """What is tortured: its driver, and the environment of `tools/pins` that it runs in; without one, this Python."""

    driver: str
    environment: str = ""
    needs: tuple[str, ...] = ()
    """What must be installed, pinned, if no environment has all of it."""


ADK = ("google-adk[db]==2.13.0", "aiosqlite==0.22.1")
STORES = {
    "onrecord": Store("onrecord.testing.torture.own:OnrecordDriver"),
    "openai-agents": Store(f"{DRIVERS}.openai_agents:OpenAIAgentsDriver", "core"),
    "langgraph": Store(f"{DRIVERS}.langgraph:LangGraphDriver", "core"),
    "our langgraph": Store(f"{DRIVERS}.langgraph:OnrecordLangGraphDriver", "core"),
    "adk-sqlite": Store(f"{DRIVERS}.adk:SqliteDriver", needs=ADK),
    "adk-database": Store(f"{DRIVERS}.adk:DatabaseDriver", needs=ADK),
    "our adk": Store(f"{DRIVERS}.adk:OnrecordAdkDriver", needs=ADK),
    "strands": Store(f"{DRIVERS}.strands:StrandsDriver", "strands"),
    "strands-storage": Store(f"{DRIVERS}.strands_storage:StorageDriver", "strands"),
    "our openai-agents": Store(f"{DRIVERS}.our_openai_agents:OurOpenAIAgentsDriver", "core"),
    "our strands": Store(f"{DRIVERS}.our_strands:OurStrandsDriver", "strands"),
    "our strands-storage": Store(f"{DRIVERS}.strands_storage:OurStorageDriver", "strands"),
    "our claude-agent-sdk": Store(f"{DRIVERS}.our_claude:OurClaudeDriver", "claude"),
    "our pydantic-ai": Store(f"{DRIVERS}.our_pydantic_ai:OurPydanticDriver", "pydantic-ai"),
    "pydantic-ai-harness": Store(f"{DRIVERS}.pydantic_steps:SqliteStepsDriver", "pydantic-steps"),
    "our pydantic-ai-harness": Store(f"{DRIVERS}.pydantic_steps:OurStepsDriver", "pydantic-steps"),
    "agent-framework": Store(f"{DRIVERS}.agent_framework:FileHistoryDriver", "agent-framework"),
    "our agent-framework": Store(f"{DRIVERS}.agent_framework:OurAgentFrameworkDriver", "agent-framework"),
}


def python_of(store: Store) -> Path:
    """A Python with the framework and this project in it, made once for the same requirements."""
    if store.environment:
        return frameworks.environment(store.environment)
    if not store.needs:
        return Path(sys.executable)
    name = "".join(letter if letter.isalnum() else "-" for letter in "-".join(store.needs))
    place = PLACE / name
    python = place / "bin" / "python"
    if not (place / "ready").exists():
        print(f"installing {', '.join(store.needs)} into {place.relative_to(ROOT)}", file=sys.stderr)
        venv.create(place, with_pip=True, clear=True)
        pip = [str(python), "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*pip, *store.needs, str(ROOT)], check=True)
        (place / "ready").touch()
    return python


def torture(name: str, attacks: list[str]) -> dict[str, Any]:
    """Run some attacks on one store, or every one; progress goes to the terminal."""
    store = STORES[name]
    print(f"== {name}", file=sys.stderr)
    source = {**os.environ, "PYTHONPATH": str(ROOT / "src")}  # the code as it is now, not as it was installed
    command = [str(python_of(store)), "-W", "ignore", "-m", "onrecord.testing.torture", store.driver, *attacks]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=source)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def merged(before: dict[str, Any] | None, made: dict[str, Any]) -> dict[str, Any]:
    """A store's outcomes, of which some were made again; all of them if its version has changed."""
    kept = before["outcomes"] if before and before["store"] == made["store"] else []
    found = {one["attack"]: one for one in [*kept, *made["outcomes"]]}
    return {**made, "outcomes": [found[attack] for attack in ATTACKS if attack in found]}


def table(results: dict[str, dict[str, Any]]) -> str:
    """The outcomes as Markdown: one row for each attack, then what was lost, in words."""
    shown = [name for name in STORES if name in results]
    lines = [f"| attack | {' | '.join(shown)} |", "|---|" + "---|" * len(shown)]
    found = {name: {one["attack"]: one for one in results[name]["outcomes"]} for name in shown}
    for attack in ATTACKS:
        cells = [_cell(found[name].get(attack)) for name in shown]
        lines.append(f"| {attack.replace('_', ' ')} | {' | '.join(cells)} |")
    counts = [f"{sum(one['passed'] for one in found[name].values())} of {len(found[name])}" for name in shown]
    lines.append(f"| **survived** | {' | '.join(counts)} |")
    for attack in DAMAGE:
        cells = [_check(found[name].get(attack)) for name in shown]
        lines.append(f"| {attack.replace('_', ' ')}: found by its check on demand | {' | '.join(cells)} |")
    for name in shown:
        lost = [one for one in found[name].values() if not one["passed"]]
        lines += ["", f"**{results[name]['store']}**" + ("" if lost else ": nothing was lost.")]
        lines += [""] if lost else []
        lines += [f"- {one['attack'].replace('_', ' ')}: {one['said']}" for one in lost]
    return "\n".join(lines) + "\n"


def _cell(outcome: dict[str, Any] | None) -> str:
    return "not measured" if outcome is None else "survived" if outcome["passed"] else "**lost**"


def _check(outcome: dict[str, Any] | None) -> str:
    return "not measured" if outcome is None or "check" not in outcome else outcome["check"] or "no check"


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev torture", description="Torture session stores.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(STORES)}")
    only = f"only this attack; may be repeated: {', '.join(ATTACKS)}"
    parser.add_argument("--attack", action="append", choices=ATTACKS, metavar="ATTACK", default=[], help=only)
    parser.add_argument("--write", action="store_true", help="write the results to docs/torture.md")
    chosen = parser.parse_args()
    unknown = [name for name in chosen.names if name not in STORES]
    if unknown:
        parser.error(f"there is no store {unknown[0]!r}; there are {', '.join(STORES)}")
    results: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    made = {name: torture(name, chosen.attack) for name in chosen.names or STORES}
    print(table(made))
    if chosen.write:
        results |= {name: merged(results.get(name), one) for name, one in made.items()}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        write_table(PAGE, "table", "./dev torture --write", table(results))
    return 0 if all(one["passed"] for result in made.values() for one in result["outcomes"]) else 1


if __name__ == "__main__":
    sys.exit(main())
