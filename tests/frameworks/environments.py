"""Which tests of adapters cannot run here, because their frameworks have environments of their own."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path

FOLDER = Path(__file__).parent
NEEDED = {
    "test_agent_framework.py": "agent_framework",
    "test_agent_framework_values.py": "agent_framework",
    "test_claude_agent_sdk.py": "claude_agent_sdk",
    "test_google_adk.py": "google.adk",
    "test_google_adk_failures.py": "google.adk",
    "test_google_adk_others.py": "google.adk",
    "test_one_session_claude.py": "claude_agent_sdk",
    "test_pydantic_ai.py": "pydantic_ai.conversation_store",
    "test_pydantic_copies.py": "pydantic_ai.conversation_store",
    "test_pydantic_steps.py": "pydantic_ai_harness",
    "test_strands.py": "strands",
    "test_strands_interrupts.py": "strands",
    "test_strands_storage.py": "strands",
}
"""What each of these files imports."""


def left_out() -> list[str]:
    """The files whose framework is not installed."""
    return [name for name, module in NEEDED.items() if not _is_installed(module)]


def notice(paths: list[str]) -> str:
    """What a run of these paths says about the files that it left out; empty if it has all that it was asked for."""
    files = left_out()
    if not files or not any(FOLDER.is_relative_to(Path(path).resolve()) for path in paths):
        return ""
    known = tomllib.loads((FOLDER.parents[1] / "tools" / "frameworks.toml").read_text())
    names = [
        name
        for name, about in known.items()
        if not {Path(file).name for file in about["ours"].split()}.isdisjoint(files)
    ]
    return f"not installed here, so not run: {', '.join(files)}. `./dev frameworks {' '.join(names)}` runs them."


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False
