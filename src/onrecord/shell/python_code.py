"""What a piece of Python code writes, as far as its text says: `python -c`, or a here-document for `python -`."""

from __future__ import annotations

import ast

from onrecord.shell.splitting import join

_FILES = frozenset({"write_text", "write_bytes", "touch", "unlink", "rename", "rmdir", "symlink_to", "hardlink_to"})
"""Methods of a path that change what is there."""
_MODULES = {
    "os": {"remove", "unlink", "rename", "replace", "renames", "truncate", "rmdir", "symlink", "link"},
    "shutil": {"copy", "copy2", "copyfile", "copytree", "move", "rmtree"},
}
_STARTERS = {"os": {"system", "popen"}, "subprocess": {"run", "call", "check_call", "check_output", "Popen"}}
_MODES = frozenset("wax+")


class Written:
    """What code writes."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        """Files that it certainly writes."""
        self.named: list[str] = []
        """Files that it names, where it is not said which of them it writes."""
        self.lines: list[str] = []
        """Command lines that it runs."""
        self.unknown = False
        """It writes a file that has no name in the call."""
        self.maybe = False
        """It opens a file, and only when it runs is it known whether for writing."""


def written_by(code: str) -> Written | None:
    """What code writes; None if it is no Python."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    found = Written()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            _look(node, found)
    return found


def _look(call: ast.Call, found: Written) -> None:
    called, arguments = call.func, [_text(one) for one in call.args]
    first = arguments[0] if arguments else None
    if isinstance(called, ast.Name):
        if called.id == "Path" and first is not None:
            found.named.append(first)
        elif called.id == "open":
            _opened(call, first, 1, found)
        return
    if not isinstance(called, ast.Attribute):
        return
    owner = called.value.id if isinstance(called.value, ast.Name) else ""
    if owner in _STARTERS and called.attr in _STARTERS[owner]:
        line = _line(call.args[0]) if call.args else None
        found.lines += [line] if line else []
    elif owner in _MODULES and called.attr in _MODULES[owner]:
        known = [text for text in arguments if text is not None]
        found.paths += known
        found.unknown = found.unknown or not known
    elif owner in ("io", "codecs") and called.attr == "open":
        _opened(call, first, 1, found)
    elif called.attr == "open" or called.attr in _FILES:
        path = _path_of(called.value)
        if called.attr == "open":
            _opened(call, path, 0, found)
        else:
            _written(path, found)


def _opened(call: ast.Call, path: str | None, place: int, found: Written) -> None:
    """A file that is opened: what its mode says."""
    given = next((word.value for word in call.keywords if word.arg == "mode"), None)
    mode = given if given is not None else call.args[place] if len(call.args) > place else None
    said = _text(mode) if mode is not None else "r"
    if path is not None and said is not None and not _MODES & set(said):
        found.named.append(path)
    elif said is None:
        found.maybe = True
    elif _MODES & set(said):
        _written(path, found)


def _written(path: str | None, found: Written) -> None:
    if path is None:
        found.unknown = True
    else:
        found.paths.append(path)


def _path_of(node: ast.expr) -> str | None:
    """The path in `Path("x")` or `pathlib.Path("x")`."""
    if isinstance(node, ast.Call) and len(node.args) == 1:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        return _text(node.args[0]) if name == "Path" else None
    return None


def _line(node: ast.expr) -> str | None:
    if isinstance(node, ast.List | ast.Tuple):
        words = [_text(one) for one in node.elts]
        return join(word for word in words if word is not None) if all(words) else None
    return _text(node)


def _text(node: ast.expr) -> str | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
