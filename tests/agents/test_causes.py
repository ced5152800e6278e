"""Why a run stopped, recognised in the output of the real programs."""

import json
import time

import pytest

from onrecord.vendors.endings import End, classify
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


@pytest.fixture
def in_utc():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


NIGHT = 1_763_175_601.0
"""2025-11-15, 03:00:01 UTC: a second after the time that was announced as 3:00 AM."""


@pytest.mark.parametrize(
    ("now", "said", "after"),
    [
        (NIGHT, "You've hit your usage limit. Upgrade to Pro or try again at 3:00 AM.", 59),
        (NIGHT + 50, "You've hit your usage limit. Upgrade to Pro or try again at 3:00 AM.", 15),
        (NIGHT + 300, "You've hit your usage limit. Try again at 3:00 AM.", 15),
        (NIGHT, "5-hour limit reached ∙ resets 3am (UTC)", 59),
        (NIGHT, "You've hit your usage limit. Try again at Nov 15th, 2025 3:00 AM.", 59),
        (NIGHT, "usage limit; resets Nov 15 at 3am (UTC)", 59),
        (NIGHT + 3600, "You've hit your usage limit. Try again at 3:00 AM.", 23 * 3600 - 1),
        (NIGHT, "You've hit your usage limit. Try again at 3:01 AM.", 59),
        (NIGHT, "usage limit; resets Jan 2 at 3am (UTC)", 48 * 86_400 - 1),
    ],
)  # fmt: skip
def test_a_time_that_has_just_passed_means_soon(in_utc, now, said, after):
    """Vendors cut off the seconds: woken at 3:00:01 while the limit holds until 3:00:40, it waits a minute, not a day."""
    found = classify([said], 1, lambda _record: End(), now=now)
    assert (found.cause, found.resets_at) == ("usage_window", now + after)


GEMINI_STACK = """\
Attempt 1 failed: Rate limit reached, try again later.. Max attempts reached
Error when talking to Gemini API Full report available at: /tmp/e.json RetryableQuotaError: Rate limit reached, try again later.
    at classifyGoogleError (file:///opt/gemini-cli/bundle/chunk-JDPZ4CE3.js:307333:14)
    at process.processTicksAndRejections (node:internal/process/task_queues:104:5)
    at async main (file:///opt/gemini-cli/bundle/gemini-3HFX2LNT.js:17627:5) {
  cause: {
    code: 429,
    message: 'Rate limit reached, try again later.',
    details: []
  },
  retryDelayMs: undefined,
  status: 429
}"""


@pytest.mark.parametrize(
    ("printed", "cause", "means"),
    [
        (GEMINI_STACK, "rate_limit", "RetryableQuotaError: Rate limit reached, try again later."),
        (("node:internal/modules/cjs/loader:1228\n  throw err;\n  ^\n\nError: Cannot find module 'x'\n"
         "    at Function._load (node:internal/modules/cjs/loader:1211:15) {\n  code: 'MODULE_NOT_FOUND',\n"
         "  requireStack: []\n}\n\nNode.js v22.1.0"), "crash", "Error: Cannot find module 'x'"),
        ('Traceback (most recent call last):\n  File "/a.py", line 3, in <module>\nValueError: no such flag', "crash",
         "ValueError: no such flag"),
        ("error: unexpected argument '--nope' found", "crash", "error: unexpected argument '--nope' found"),
    ],
)  # fmt: skip
def test_a_stop_is_told_by_its_meaning(printed, cause, means):
    """The message of an interruption is the line that says why, not the last line of a stack; all of it is kept too."""
    found = classify(printed.splitlines(), 1, lambda _record: End())
    assert found.cause == cause
    assert found.message.endswith(means)
    assert "\n" not in found.message
    assert found.detail == "" or printed.splitlines()[-1].strip() in found.detail
