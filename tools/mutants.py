"""Mutation testing: change one thing in a module, run the tests chosen for it, and see whether any of them fails.

`./dev mutants [MODULE...] [--sample N]` calls this. A mutant that no test notices has survived: either the change means
the same, or a test is missing. Cosmic Ray makes the small changes (operators, numbers, comparisons, loops, exceptions);
two operators of our own leave out what the others never touch: an entry of a collection, and a statement.
Which tests are run for which module is in mutants.toml. Every mutant runs in a copy of the project, never in the tree.
"""

import argparse
import ast
import difflib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple, TypeGuard

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator, operator_names

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = Path("src/onrecord")
COPIED = ("src", "tests", "docs", "pyproject.toml")
PYTEST = (
    "-x",
    "-q",
    "--no-header",
    "-p",
    "no:cacheprovider",
    "-p",
    "fewer_examples",
    "-o",
    "addopts=-W error --strict-markers",
)
"""Without the plugins of a normal run: only the exit status counts."""
PLUGIN = "fewer_examples"
FEWER_EXAMPLES = """
import pytest
from hypothesis import settings

@pytest.hookimpl(trylast=True)
def pytest_configure():
    settings.register_profile("mutants", settings.get_profile("ci"), max_examples=25)
    settings.load_profile("mutants")
"""
"""A pytest plugin: a property is tried often enough to notice most mutants, and a mutant costs seconds."""
KILLED, SURVIVED, TIMED_OUT = "killed", "survived", "timed out"
PATIENCE_SECONDS, PATIENCE_FACTOR = 20.0, 4.0
"""A mutant that runs this much longer than the unchanged module counts as noticed: it loops."""

Node = ast.expr | ast.stmt | ast.keyword
Place = tuple[int, int]
"""Line (from 1) and column (from 0), in characters."""


class Mutant(NamedTuple):
    """One change to one module."""

    module: str
    start: Place
    end: Place
    operator: str
    occurrence: int
    """Which of the operator's changes; for our own operators, which of the candidates."""

    @property
    def title(self) -> str:
        """Where and what, in one line."""
        return f"{self.module}:{self.start[0]} {self.operator.rpartition('/')[2]}"


class Selection(NamedTuple):
    """The tests of some modules."""

    modules: list[str]
    tests: list[str]
    words: list[str]
    """More arguments for pytest."""


class Result(NamedTuple):
    """The outcome of a mutant."""

    mutant: Mutant
    outcome: str


# What can be changed


class Source:
    """The text of a module, with positions as both parsers give them."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.text = (ROOT / PACKAGE / module).read_text(encoding="utf-8")
        self.tree = ast.parse(self.text)
        self.lines = self.text.splitlines(keepends=True)

    def start(self, node: Node) -> Place:
        """Where a node begins."""
        return node.lineno, self._characters(node.lineno, node.col_offset)

    def end(self, node: Node) -> Place:
        """Where a node ends."""
        line = node.end_lineno or node.lineno
        return line, self._characters(line, node.end_col_offset or 0)

    def _characters(self, line: int, count: int) -> int:
        return len(self.lines[line - 1].encode()[:count].decode())

    def changed(self, start: Place, end: Place, text: str) -> str:
        """The text of the module with one part replaced."""
        first, last = (sum(map(len, self.lines[: line - 1])) + column for line, column in (start, end))
        return self.text[:first] + text + self.text[last:]

    def untouched(self) -> list[tuple[Place, Place]]:
        """Parts where a change means nothing when the program runs: types, and what only a type checker reads."""
        found: list[Node] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation:
                found.append(node.annotation)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns:
                found.append(node.returns)
            elif _is_for_checkers(node):
                found.append(node)
        return [(self.start(node), self.end(node)) for node in found]


def _is_for_checkers(node: ast.AST) -> TypeGuard[ast.stmt]:
    """Whether a statement means nothing, or next to nothing, when the program runs."""
    match node:
        case ast.If(test=test):
            return _names(test, "TYPE_CHECKING")
        case ast.Assign(targets=[target, *_]):
            return _names(target, "TYPE_CHECKING", "__slots__")
        case ast.ClassDef(bases=bases):
            return any(_names(base, "Protocol") for base in bases)
    return False


def _names(node: ast.expr, *names: str) -> bool:
    return isinstance(node, ast.Name) and node.id in names


def mutants_of(source: Source) -> list[Mutant]:
    """Every change worth trying."""
    untouched = source.untouched()
    found = [*_by_cosmic_ray(source), *_entries(source), *_statements(source)]
    return [one for one in found if not any(start <= one.start and one.end <= end for start, end in untouched)]


def _by_cosmic_ray(source: Source) -> Iterator[Mutant]:
    nodes = list(ast_nodes(get_ast(source.text)))
    for name in operator_names():
        operator = get_operator(name)
        if operator.arguments():
            continue  # these need names of variables in their configuration
        places = (place for node in nodes for place in operator().mutation_positions(node))
        for occurrence, (start, end) in enumerate(places):
            yield Mutant(source.module, start, end, name, occurrence)


def _entries(source: Source) -> Iterator[Mutant]:
    """Leave out an entry of a dict, list, tuple or set, or a keyword argument."""
    count = 0
    for node in ast.walk(source.tree):
        for start, end in _cuts(source, node):
            yield Mutant(source.module, start, end, "own/DropEntry", count)
            count += 1


def _cuts(source: Source, node: ast.AST) -> Iterator[tuple[Place, Place]]:
    """What to cut to remove one entry, with its comma."""
    parts: list[tuple[Place, Place]] = []
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            line, column = source.start(key or value)
            parts.append(((line, column if key else column - len("**")), source.end(value)))
    elif isinstance(node, ast.List | ast.Tuple | ast.Set) and not isinstance(getattr(node, "ctx", None), ast.Store):
        parts = [(source.start(one), source.end(one)) for one in node.elts]
    elif isinstance(node, ast.Call):
        parts = [(source.start(one), source.end(one)) for one in node.args]
        plain = len(parts)
        parts += [(source.start(one), source.end(one)) for one in node.keywords]
        yield from list(_without_each(parts))[plain:]
        return
    yield from _without_each(parts)


def _without_each(parts: list[tuple[Place, Place]]) -> Iterator[tuple[Place, Place]]:
    if len(parts) == 1:
        yield parts[0]
        return
    for one, following in pairwise(parts):
        yield one[0], following[0]
    if parts:
        yield parts[-2][1], parts[-1][1]


def _statements(source: Source) -> Iterator[Mutant]:
    """Leave out a statement: one that is there for its effect, or a condition with its whole block."""
    count = 0
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        if isinstance(node, ast.Expr | ast.AugAssign | ast.Delete | ast.Raise | ast.If):
            yield Mutant(source.module, source.start(node), source.end(node), "own/DropStatement", count)
            count += 1


def mutated(source: Source, mutant: Mutant) -> str | None:
    """The module with the change; None when there is none, or when it is not valid Python."""
    if mutant.operator.startswith("own/"):
        changed = source.changed(mutant.start, mutant.end, "pass" if "Statement" in mutant.operator else "")
    else:
        changed = mutate_code(source.text, get_operator(mutant.operator)(), mutant.occurrence)
    if not changed or changed == source.text:
        return None
    try:
        same = ast.dump(ast.parse(changed)) == ast.dump(source.tree)
    except (SyntaxError, ValueError):
        return None
    return None if same else changed


def sampled(sources: list[Source], size: int | None, chance: random.Random) -> list[tuple[Mutant, str]]:
    """Mutants with their code. A place in the code counts once, however many operators could change it."""
    places: dict[tuple[str, Place], list[Mutant]] = {}
    for source in sources:
        for mutant in mutants_of(source):
            places.setdefault((mutant.module, mutant.start), []).append(mutant)
    by_name = {source.module: source for source in sources}
    order = sorted(places)
    chance.shuffle(order)
    found: list[tuple[Mutant, str]] = []
    for place in order:
        choices = places[place]
        chance.shuffle(choices)
        made = ((one, mutated(by_name[one.module], one)) for one in choices)
        found += next(([(one, code)] for one, code in made if code), [])
        if size is not None and len(found) >= size:
            break
    return found


# Running them


class Tree:
    """A copy of the project in which one mutant at a time is tried."""

    def __init__(self, place: Path) -> None:
        self.place = place
        place.mkdir()
        (place / f"{PLUGIN}.py").write_text(FEWER_EXAMPLES, encoding="utf-8")
        for name in COPIED:
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, place / name, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / name, place / name)

    def try_out(self, module: str, code: str, selection: Selection, patience: float) -> str:
        """Replace the module by the code, run its tests, restore the module."""
        file = self.place / PACKAGE / module
        original = file.read_text(encoding="utf-8")
        try:
            self._write(file, code)
            return self.run(selection, patience)
        finally:
            self._write(file, original)

    def _write(self, file: Path, code: str) -> None:
        file.write_text(code, encoding="utf-8")
        # Python recognises a compiled file by second and size, and two mutants may agree in both.
        for stale in (file.parent / "__pycache__").glob(f"{file.stem}.*"):
            stale.unlink()

    def run(self, selection: Selection, patience: float) -> str:
        """The result of the tests."""
        command = [sys.executable, "-m", "pytest", *PYTEST, *selection.words, *selection.tests]
        # The path comes before the installed package, so the copy is imported, also by programs that the tests start.
        environment = os.environ | {"PYTHONPATH": f"{self.place / 'src'}{os.pathsep}{self.place}"}
        child = subprocess.Popen(
            command, cwd=self.place, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            status = child.wait(patience)
        except subprocess.TimeoutExpired:
            return TIMED_OUT
        finally:
            _end_group(child)
        return KILLED if status else SURVIVED


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End the tests and the processes they started."""
    with suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def try_all(
    made: list[tuple[Mutant, str]], selections: dict[str, Selection], sources: dict[str, Source], jobs: int
) -> list[Result]:
    """Run the tests of every mutant, several at a time."""
    with tempfile.TemporaryDirectory(prefix="onrecord-mutants-") as folder:
        trees: SimpleQueue[Tree] = SimpleQueue()
        for number in range(jobs):
            trees.put(Tree(Path(folder) / str(number)))
        patience = _patience(trees, [selections[mutant.module] for mutant, _code in made])

        def one(item: tuple[Mutant, str]) -> Result:
            mutant, code = item
            tree, selection = trees.get(), selections[mutant.module]
            try:
                outcome = tree.try_out(mutant.module, code, selection, patience[tuple(selection.tests)])
            finally:
                trees.put(tree)
            told = [f"{outcome:9}  {mutant.title}"]
            if outcome == SURVIVED:
                before = sources[mutant.module].text.splitlines()
                lines = difflib.unified_diff(before, code.splitlines(), n=0, lineterm="")
                told += [f"           {line}" for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
            print("\n".join(told), flush=True)
            return Result(mutant, outcome)

        with ThreadPoolExecutor(jobs) as pool:
            return list(pool.map(one, made))


def _patience(trees: "SimpleQueue[Tree]", selections: list[Selection]) -> dict[tuple[str, ...], float]:
    """How long the tests of each selection may take. They must pass on the unchanged module."""
    found: dict[tuple[str, ...], float] = {}
    tree = trees.get()
    for selection in selections:
        if tuple(selection.tests) in found:
            continue
        began = time.monotonic()
        if tree.run(selection, 600) != SURVIVED:
            sys.exit(f"mutants: these fail without any change: {' '.join(selection.tests)}")
        took = time.monotonic() - began
        print(f"{took:8.1f}s  unchanged: {' '.join(selection.tests)}", flush=True)
        found[tuple(selection.tests)] = PATIENCE_SECONDS + PATIENCE_FACTOR * took
    trees.put(tree)
    return found


# Results


def room_of(module: str) -> str:
    """The room of a module; a module outside any room is its own."""
    return module.partition("/")[0]


def report(results: list[Result]) -> None:
    """A figure for each room."""
    counts = Counter((room_of(result.mutant.module), result.outcome) for result in results)
    print(f"\n{'room':10} {'mutants':>8} {'killed':>8} {'survived':>9} {'figure':>8}")
    for room in sorted({room for room, _outcome in counts}):
        survived = counts[room, SURVIVED]
        total = survived + counts[room, KILLED] + counts[room, TIMED_OUT]
        print(f"{room:10} {total:8} {total - survived:8} {survived:9} {(total - survived) / total:8.0%}")


def read_selections() -> dict[str, Selection]:
    """The tests of every module."""
    data = tomllib.loads(Path(__file__).with_name("mutants.toml").read_text(encoding="utf-8"))
    found: dict[str, Selection] = {}
    for one in data["selection"]:
        selection = Selection(one["modules"], one["tests"], data["words"])
        found |= dict.fromkeys(selection.modules, selection)
    return found


def wanted(names: list[str], known: list[str]) -> list[str]:
    """The modules behind names of rooms and modules; all of them without names."""
    for name in names:
        if not any(module == name or room_of(module) == name.rstrip("/") for module in known):
            sys.exit(f"mutants: no tests are chosen for {name!r}; tools/mutants.toml has: {' '.join(sorted(known))}")
    return [
        one for one in known if not names or one in names or any(room_of(one) == name.rstrip("/") for name in names)
    ]


def main(words: list[str]) -> int:
    """Make the mutants, try them, report the results."""
    parser = argparse.ArgumentParser(prog="./dev mutants", description="Mutation testing on chosen modules.")
    parser.add_argument(
        "modules", nargs="*", metavar="MODULE", help="a room (views, log, rules.py) or a module (views/note.py)"
    )
    parser.add_argument("--sample", type=int, metavar="N", help="only N mutants of each room, chosen at random")
    parser.add_argument("--seed", type=int, default=1, help="which ones: the same seed chooses the same (default 1)")
    parser.add_argument(
        "--jobs", type=int, default=os.cpu_count() or 1, help="how many at a time (default: one per core)"
    )
    asked = parser.parse_args(words)
    selections = read_selections()
    sources = {module: Source(module) for module in wanted(asked.modules, list(selections))}
    made: list[tuple[Mutant, str]] = []
    for room in sorted({room_of(module) for module in sources}):
        inside = [source for module, source in sources.items() if room_of(module) == room]
        made += sampled(inside, asked.sample, random.Random(f"{asked.seed} {room}"))
    began = time.monotonic()
    results = try_all(made, selections, sources, max(1, asked.jobs))
    report(results)
    print(f"\n{len(results)} mutants in {time.monotonic() - began:.0f} s, seed {asked.seed}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
