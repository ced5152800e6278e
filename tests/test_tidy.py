"""House rules that a machine can check. Each failure names the file, the line and what to do."""

import ast
import configparser
import gc
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
PACKAGE = SOURCE / "onrecord"

MODULE_LINES = 500
FUNCTION_LINES = 70

# Modules that only people import: public names, and the programs' entry points.
IMPORTED_BY_USERS = {
    "onrecord.__main__",
    "onrecord.aio",
    "onrecord.surfaces.entry",
    "onrecord.testing",
}
# Rooms whose modules people import by name: everything directly in them is public.
PUBLIC_ROOMS = {"onrecord.frameworks", "onrecord.testing.torture", "onrecord.testing.torture.drivers"}

STATEMENT = re.compile(r"\s*(SELECT|INSERT|UPDATE|DELETE|CREATE|DROP|ALTER|REPLACE|WITH)\s+\S")
TRANSACTION = re.compile(r"\s*(PRAGMA \w|(BEGIN( IMMEDIATE| EXCLUSIVE)?|COMMIT|ROLLBACK)\s*;?\s*$)")
SILENCED = re.compile(r"(noqa|type:\s*ignore)\b(?P<codes>:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*|\[[^\]]+\])?(?P<rest>.*)$")
# Written in pieces so that this file does not contain what it searches for.
MACHINE_PATH = re.compile("(^|[^A-Za-z0-9_.])/(" + "|".join(["wor" + "k", "far" + "m", "roo" + "t"]) + ")/")
REGISTRY = re.compile(
    r"(//|@)[\w.-]*(" + "|".join(["py" + "pi", "artifac" + "tory", "nex" + "us"]) + r")[\w.-]*\.\w+",
    re.IGNORECASE,
)


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def scripts() -> list[Path]:
    found = [
        ROOT / "dev",
        *(path for name in ("tools", "bench", "examples") for path in (ROOT / name).rglob("*.py")),
    ]
    return sorted(found)


def python_tests() -> list[Path]:
    return sorted((ROOT / "tests").rglob("*.py"))


def shown(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def dotted(path: Path) -> str:
    """The import name of a module file."""
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree(path: Path) -> ast.Module:
    # A tree is kept to the end: looking for garbage while it grows would take twice as long as parsing.
    gc.disable()
    try:
        return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    finally:
        gc.enable()


def fail_with(problems: list[str], advice: str) -> None:
    if problems:
        pytest.fail("\n".join([advice, *(f"  {problem}" for problem in problems)]), pytrace=False)


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def tracked_files() -> list[Path]:
    """What a commit would contain: tracked files and new ones that are not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        pytest.skip("cannot run here: this copy of the project is not a git checkout")
    paths = (ROOT / name for name in listed.stdout.decode().split("\0") if name)
    return sorted(path for path in paths if path.is_file())


def placed_modules() -> set[str]:
    """Every module the import contract names, relative to onrecord."""
    contract = configparser.ConfigParser()
    contract.read(ROOT / ".importlinter", encoding="utf-8")
    layers = contract["importlinter:contract:direction"]["layers"]
    return {name.strip(" ()") for line in layers.splitlines() for name in line.split("|") if name.strip()}


def top_level() -> list[str]:
    names = {path.stem for path in PACKAGE.glob("*.py")} | {path.parent.name for path in PACKAGE.glob("*/*.py")}
    return sorted(names - {"__init__", "__main__"})


def test_every_module_says_what_it_is():
    """Every module of the package opens with a docstring."""
    fail_with(
        [shown(path) for path in [*modules(), *scripts()] if not ast.get_docstring(tree(path))],
        "These modules have no docstring; the first line of a module says what it is:",
    )


def test_every_room_is_a_package():
    """Every directory with modules has an __init__.py, so that the import contract sees it."""
    rooms = {path.parent for path in modules()}
    fail_with(
        [shown(room) for room in sorted(rooms) if not (room / "__init__.py").exists()],
        "These directories have modules and no __init__.py; the import contract would not check them:",
    )


def test_no_module_is_too_long():
    """No module has more lines than a reader can remember."""
    lengths = {
        path: len(path.read_text(encoding="utf-8").splitlines()) for path in [*modules(), *scripts(), *python_tests()]
    }
    fail_with(
        [f"{shown(path)}: {length} lines" for path, length in lengths.items() if length > MODULE_LINES],
        f"Modules over {MODULE_LINES} lines; find the second idea in each and give it a module:",
    )


def test_no_function_is_too_long():
    """No function is longer than a screen."""
    problems = []
    for path in [*modules(), *scripts()]:
        for function in functions(path):
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > FUNCTION_LINES:
                problems.append(f"{shown(path)}:{function.lineno} {function.name}: {length} lines")
    fail_with(problems, f"Functions over {FUNCTION_LINES} lines:")


def test_only_surfaces_print():
    """Only a surface writes to the user's terminal."""
    problems = [
        f"{shown(path)}:{node.lineno}"
        for path in modules()
        if not path.is_relative_to(PACKAGE / "surfaces")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    fail_with(problems, "print() outside surfaces; return the value or raise, and let a surface show it:")


def imported_names(path: Path) -> Iterator[str]:
    """Everything a module imports, as absolute names; `from a import b` gives both a and a.b."""
    package = dotted(path) if path.name == "__init__.py" else dotted(path).rpartition(".")[0]
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Constant) and re.fullmatch(r"onrecord(\.\w+)+", str(node.value)):
            # A table of modules that are imported when first needed names them as strings.
            yield str(node.value)


def test_no_module_is_dead():
    """Every module is imported by another one, or is public."""
    used = {name for path in modules() for name in imported_names(path) if name != dotted(path)}
    problems = [
        f"{shown(path)} ({dotted(path)})"
        for path in modules()
        if path.name != "__init__.py"
        and dotted(path) not in used | IMPORTED_BY_USERS
        and dotted(path).rpartition(".")[0] not in PUBLIC_ROOMS
    ]
    fail_with(problems, "Nothing imports these modules; use them, remove them, or list them in IMPORTED_BY_USERS:")


def test_every_room_is_placed():
    """Every top-level module and every module of rollout has its place in the import contract."""
    rollout = {f"rollout.{path.stem}" for path in (PACKAGE / "rollout").glob("*.py")} | {
        f"rollout.{path.parent.name}" for path in (PACKAGE / "rollout").glob("*/*.py")
    }
    wanted = (set(top_level()) - {"rollout"}) | (rollout - {"rollout.__init__"})
    fail_with(sorted(wanted - placed_modules()), "Not placed in a layer of .importlinter:")


PAGES = ("AGENTS.md", "docs/architecture.md")
A_ROOM = re.compile(r"\| `(?P<room>[a-z_/]+?)(?:/|\.py)` \| (?P<about>.*?) \|")
INSIDE = re.compile(
    r"^\*\*`(?P<room>[a-z_/]+?)/`\*\*(?P<about>.*?)(?=^\*\*`|^`__main__|^## )", re.MULTILINE | re.DOTALL
)
A_PATH = re.compile(r"`(?P<path>[\w.-]+(?:/[\w.-]+)*/?)`")
A_NODE = re.compile(r"(?P<node>\b[a-z_]+\b)\[\"")


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def diagram() -> str:
    return page("docs/architecture.md").partition("```mermaid")[2].partition("```")[0]


def exists(path: str) -> bool:
    """Whether a page may name this: a module or folder of the package, or a file or folder of the project."""
    return any((base / path).exists() for base in (PACKAGE, ROOT))


def test_every_room_is_explained():
    """Every top-level room has a row in AGENTS.md and a node in the diagram of docs/architecture.md."""
    rows = {found["room"] for found in A_ROOM.finditer(page("AGENTS.md"))}
    nodes = {found["node"] for found in A_NODE.finditer(diagram())}
    rooms = top_level() + sorted(path.parent.name for path in PACKAGE.glob("*/*.toml"))
    problems = [f"AGENTS.md: {room}" for room in rooms if room not in rows]
    problems += [f"docs/architecture.md: {room}" for room in rooms if room not in nodes]
    fail_with(sorted(set(problems)), "Rooms that the architecture pages do not show; say there what each is for:")


def test_the_pages_name_what_exists():
    """Neither architecture page names a room, module or file that does not exist."""
    problems = []
    for found in (*A_ROOM.finditer(page("AGENTS.md")), *INSIDE.finditer(page("AGENTS.md"))):
        room = PACKAGE / found["room"]
        if not room.is_dir() and not room.with_suffix(".py").exists():
            problems.append(f"AGENTS.md: room {found['room']}")
        problems += [
            f"AGENTS.md: {found['room']}/{name}"
            for name in re.findall(r"`([a-z_]+)`", found["about"])
            if not (room / name).is_dir() and not (room / f"{name}.py").exists()
        ]
    rooms = {*top_level(), *(path.parent.name for path in PACKAGE.glob("*/*.toml"))}
    drawn = {found["node"] for found in A_NODE.finditer(diagram())} - {"top", "conductors", "translators", "core"}
    problems += [f"docs/architecture.md: node {node}" for node in sorted(drawn - rooms)]
    for name in PAGES:
        named = {found["path"] for found in A_PATH.finditer(page(name))}
        problems += [
            f"{name}: {path}"
            for path in sorted(named)
            if ("/" in path or path.endswith(".py"))
            and not exists(path)
            and not exists(path.rpartition(".")[0] + ".py")
        ]
    fail_with(problems, "Named in an architecture page, and not there:")


def test_names_of_variables_are_in_one_place():
    """Only environment.py writes the name of an environment variable of ours; help explains names that it has."""
    known = {node.value for node in ast.walk(tree(PACKAGE / "environment.py")) if isinstance(node, ast.Constant)}
    problems = []
    for path in modules():
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            if not re.fullmatch(r"ONRECORD_[A-Z_]+", node.value):
                continue
            explains = path == PACKAGE / "surfaces" / "cli" / "help.py" and node.value in known
            if path != PACKAGE / "environment.py" and not explains:
                problems.append(f"{shown(path)}:{node.lineno}: {node.value}")
    fail_with(problems, "Names of environment variables; import them from onrecord.environment:")


def test_nobody_reaches_through_a_session():
    """Outside the session's own room, code uses the verbs of a session and of `connect`, and not their store.

    The page reads records without their payloads, and `doctor` and `sweep` look at the store itself.
    """
    problems = []
    upkeep = PACKAGE / "surfaces" / "cli" / "upkeep"
    own = (PACKAGE / "session", PACKAGE / "testing", PACKAGE / "web", upkeep / "doctor.py", upkeep / "retain.py")
    for path in modules():
        if any(path.is_relative_to(place) for place in own):
            continue
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Attribute) and node.attr == "store":
                owner = node.value
                name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
                if name in ("session", "records", "_records"):
                    problems.append(f"{shown(path)}:{node.lineno}")
    fail_with(problems, "A store used from outside; use a verb of the session or of `SessionStore`, or add one:")


def test_nothing_tells_where_it_was_made():
    """No file contains a path or a package host of the machine it was written on."""
    problems = []
    for path in tracked_files():
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(lines, 1):
            if MACHINE_PATH.search(line) or REGISTRY.search(line):
                problems.append(f"{shown(path)}:{number}: {line.strip()[:100]}")
    fail_with(problems, "Machine paths or registry hosts; use a relative path or a neutral example:")


def comments(path: Path) -> Iterator[tuple[int, str]]:
    """The comments of a file that may silence a check, with their lines; most files have none and are not taken apart."""
    text = path.read_text(encoding="utf-8")
    if not re.search(r"noqa|type:\s*ignore", text):
        return
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def unexplained(comment: str) -> bool:
    """Whether a comment silences a check without naming it or without a reason."""
    parts = [part.strip() for part in comment.split("#") if part.strip()]
    silenced = [SILENCED.match(part) for part in parts]
    if not any(silenced):
        return False
    reason = "".join(found["rest"] if found else part for part, found in zip(parts, silenced, strict=True))
    named = all(found["codes"] for found in silenced if found)
    return not named or len(re.findall(r"[a-z]{2,}", reason)) < 2


@pytest.mark.parametrize(
    ("comment", "bad"),
    [
        ("# noqa", True),
        ("# noqa: S101", True),
        ("# noqa: S101, S102", True),
        ("# noqa: BLE001  # a hook never breaks its agent", False),
        ("# noqa: BLE001 a hook never breaks its agent", False),
        ("# type: ignore[arg-type]", True),
        ("# type: ignore  # the stub is wrong", True),
        ("# type: ignore[arg-type]  # the stub is wrong", False),
        ("# type: ignore[arg-type]  # noqa: S101  # the stub is wrong", False),
        ("# why noqa exists", False),
    ],
)
def test_a_reason_is_recognised(comment: str, bad: bool):
    """The rule for silenced checks distinguishes a reason from a code."""
    assert unexplained(comment) is bad


def test_every_silenced_check_has_a_reason():
    """A comment that silences a check names the check and says why, on the same line."""
    problems = [
        f"{shown(path)}:{number}: {comment}"
        for path in [*modules(), *scripts(), *python_tests()]
        for number, comment in comments(path)
        if unexplained(comment)
    ]
    fail_with(problems, "Write `# noqa: CODE  # reason` or `# type: ignore[code]  # reason`:")


def test_every_test_is_a_claim():
    """Every test has a docstring, and the docstring is what the test claims."""
    problems = [
        f"{shown(path)}:{function.lineno} {function.name}"
        for path in [
            *python_tests(),
            *(path for path in modules() if dotted(path).startswith("onrecord.testing")),
        ]
        for function in functions(path)
        if function.name.startswith("test_") and not ast.get_docstring(function)
    ]
    fail_with(problems, "Tests without a docstring; state the claim in a sentence:")


def docstrings(path: Path) -> set[int]:
    """The lines of bare strings: documentation, not data."""
    return {
        node.value.lineno
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    }


def is_sql(text: str, path: Path) -> bool:
    if path == PACKAGE / "testing" / "torture" / "tampering.py":
        return False  # it damages databases of other programs, whose tables it learns at run time
    in_stores = path.is_relative_to(PACKAGE / "stores")
    return bool(STATEMENT.match(text)) or (not in_stores and bool(TRANSACTION.match(text)))


def test_sql_lives_in_sql_files():
    """No statement is written in Python; pragmas and transaction words are allowed in stores."""
    problems = []
    for path in modules():
        prose = docstrings(path)
        for node in ast.walk(tree(path)):
            if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
                continue
            if node.lineno not in prose and is_sql(node.value, path):
                problems.append(f"{shown(path)}:{node.lineno}: {node.value.strip()[:60]!r}")
    fail_with(problems, "SQL in Python; put the statement into a file below stores/sql:")


def test_importing_the_package_is_cheap():
    """`import onrecord` loads the standard library and nothing else."""
    code = (
        "import sys; before = set(sys.modules); import onrecord;"
        "roots = {name.partition('.')[0] for name in set(sys.modules) - before} - {'onrecord'};"
        "print(*sorted(root for root in roots if root not in sys.stdlib_module_names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
