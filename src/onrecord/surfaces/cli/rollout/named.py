"""Objects of the user's own code, named on the command line as module:name."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onrecord.environment import DEBUG_VARIABLE
from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from onrecord.rollout.turns import Tokenizer

_TOKENIZER = ("prompt", "suffix", "repair")


def is_named(text: str) -> bool:
    """Whether this is module:name and not a path."""
    module, colon, name = text.partition(":")
    return bool(colon) and all(part.isidentifier() for part in (*module.split("."), name))


def named(text: str, what: str) -> Any:
    """The callable object that module:name names; modules of the current directory are found too."""
    module, _colon, name = text.partition(":")
    if not is_named(text):
        raise InvalidInput(f"--{what} needs module:name, not {text!r:.100}", hint=f"--{what} my_rollouts:{what}")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError) as problem:
        raise InvalidInput(f"cannot find {text} for --{what}: {problem}") from None
    except Exception as problem:  # a user's module may raise anything
        raise _failed(module, problem) from problem
    if not callable(found) and not _is_tokenizer(found):
        raise InvalidInput(f"{text} cannot be called")
    return found


def tokenizer_of(found: Any, text: str) -> Tokenizer:
    """A tokenizer: the object itself, or what a function without arguments or a class returns."""
    try:
        made = found if _is_tokenizer(found) and not isinstance(found, type) else found()
    except Exception as problem:  # a user's function may raise anything
        raise _failed(text, problem) from problem
    if not _is_tokenizer(made):
        raise InvalidInput(f"{text} is not a tokenizer", hint=f"it needs the methods {', '.join(_TOKENIZER)}")
    chosen: Tokenizer = made
    return chosen


def _failed(text: str, problem: Exception) -> InvalidInput:
    """The error for code of the user that failed: it is no bug of ours."""
    return InvalidInput(
        f"{text} raised {type(problem).__name__}: {problem}", hint=f"set {DEBUG_VARIABLE}=1 to see where"
    )


def _is_tokenizer(value: Any) -> bool:
    return all(callable(getattr(value, name, None)) for name in _TOKENIZER)
