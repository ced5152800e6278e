"""A framework that is missing or too old is one sentence, with the command that installs it."""

import sys
import types

import pytest

from onrecord.frameworks.requiring import required


def test_a_missing_framework_is_one_sentence_with_the_command(monkeypatch):
    """The import of an adapter says which framework it needs, from which version, and how to install it."""
    monkeypatch.setitem(sys.modules, "agents", None)
    monkeypatch.delitem(sys.modules, "onrecord.frameworks.openai_agents", raising=False)
    with pytest.raises(ImportError) as found:
        __import__("onrecord.frameworks.openai_agents")
    sentence = "this adapter needs openai-agents 0.24 or newer: pip install 'onrecord[openai-agents]'"
    assert str(found.value) == sentence


def test_a_framework_that_is_too_old_is_the_same_sentence(monkeypatch):
    """A name that an older version does not have is answered alike."""
    monkeypatch.setitem(sys.modules, "anything", types.ModuleType("anything"))
    wanted = r"anything 3 or newer: pip install 'onrecord\[anything\]'"
    with pytest.raises(ImportError, match=wanted), required("anything", "anything", "3"):
        from anything import Newer  # type: ignore[import-not-found]  # noqa: F401  # that it is missing is the point


def test_another_missing_module_is_not_blamed_on_the_framework():
    """An import that fails for a reason of its own stays as it is."""
    with pytest.raises(ImportError, match="nothing_of_the_kind"), required("anything", "anything", "3"):
        import nothing_of_the_kind  # type: ignore[import-not-found]  # noqa: F401  # as above
