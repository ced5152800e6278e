"""Tests of frameworks that have an environment of their own are collected there: `./dev frameworks NAME`."""

import importlib.util

OWN_ENVIRONMENT = {
    "test_agent_framework.py": "agent_framework",
    "test_claude_agent_sdk.py": "claude_agent_sdk",
    "test_google_adk.py": "google.adk",
    "test_one_session_claude.py": "claude_agent_sdk",
    "test_pydantic_ai.py": "pydantic_ai.conversation_store",
    "test_pydantic_steps.py": "pydantic_ai_harness",
    "test_strands.py": "strands",
    "test_strands_storage.py": "strands",
}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


collect_ignore = ["upstream", *(name for name, module in OWN_ENVIRONMENT.items() if not _is_installed(module))]
