"""Why a run stopped, recognised in the output of the real programs."""

import json

import pytest

from onrecord.vendors.port import vendor


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        ("API Error: Request rejected (429) · Rate limit reached, try again later.", "rate_limit"),
        ("Claude AI usage limit reached|1794750000", "usage_window"),
        ("5-hour limit reached ∙ resets 3pm", "usage_window"),
        ("The provider rejected the prompt as too long, but automatic recovery could not reduce it.", "tokens"),
        ("Prompt is too long", "tokens"),
        ("API Error: 529 Overloaded", "overload"),
    ],
)  # fmt: skip
def test_limits_are_told_apart(said, cause):
    """A rate limit is neither a usage window nor a prompt that is too long (G01-G04)."""
    result = {"type": "result", "subtype": "success", "is_error": True, "result": said}
    assert vendor("claude").classify([json.dumps(result)], 1).cause == cause
