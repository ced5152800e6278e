"""Tests of frameworks that have an environment of their own are collected there: `./dev frameworks NAME`."""

import importlib.util

OWN_ENVIRONMENT = {
    "test_claude_agent_sdk.py": "claude_agent_sdk",
    "test_google_adk.py": "google.adk",
    "test_strands.py": "strands",
}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


collect_ignore = ["upstream", *(name for name, module in OWN_ENVIRONMENT.items() if not _is_installed(module))]
