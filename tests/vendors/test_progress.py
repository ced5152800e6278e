"""What an agent is doing, read from records as the real programs wrote them (shortened)."""

import json

import pytest

from onrecord.agents.printing import Printer
from onrecord.vendors.port import ABORTED, FAILED, IDLE, WORKING, Entry, Turn, vendor
from onrecord.vendors.progress import follow, left, stopped

WINDOW = "API Error: Request rejected (429) · Claude AI usage limit reached|1794825966"
CODEX_LIMIT = "You’ve hit your usage limit. Upgrade to Pro, or try again at 10:49 AM."


def claude(kind, content, **more):
    about = {name: more.pop(name) for name in ("model", "stop_reason") if name in more}
    return {"type": kind, "isSidechain": False, "message": {"role": kind, "content": content, **about}, **more}


def codex(kind, **payload):
    return {"timestamp": "2026-11-16T09:49:34.412Z", "type": "event_msg", "payload": {"type": kind, **payload}}


ASKED = claude("user", "Paint it")
CALLED = claude("assistant", [{"type": "tool_use", "id": "t", "name": "Bash", "input": {}}], stop_reason="tool_use")
RESULT = claude("user", [{"type": "tool_result", "tool_use_id": "t", "content": "ok"}])
SAID = claude("assistant", [{"type": "text", "text": "Done"}], stop_reason="end_turn")
LIMITED = claude(
    "assistant", [{"type": "text", "text": WINDOW}], model="<synthetic>", stop_reason="stop_sequence",
    isApiErrorMessage=True, error="rate_limit",
)  # fmt: skip


def opencode(table: str, **data: object) -> dict[str, object]:
    return {"table": table, "row": {"id": "1", "data": json.dumps(data)}}


AFTER_CRASH = [
    claude("user", [{"type": "tool_result", "tool_use_id": "t", "content": "[Tool call interrupted: the session ended"}]),
    claude("assistant", [{"type": "text", "text": "No response requested."}], model="<synthetic>",
           stop_reason="stop_sequence", isApiErrorMessage=False),
]  # fmt: skip
CODEX_ASKED = codex("item_completed", item={"type": "UserMessage", "content": [{"type": "text", "text": "Paint it"}]})
QWEN_ASKED = {"type": "user", "message": {"role": "user", "parts": [{"text": "Paint it"}]}}
QWEN_ERROR = {"type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": {
    "event.name": "qwen-code.api_error", "error_message": "429 You exceeded your current quota", "status_code": 429,
}}}  # fmt: skip
COPILOT_ASKED = {"type": "user.message", "data": {"content": "Paint it", "transformedContent": "<now>Paint it"}}
OPENCODE_ASKED = {"table": "part", "row": {"role": "user", "data": json.dumps({"type": "text", "text": "Paint it"})}}
GEMINI_ASKED = {
    "id": "1",
    "type": "user",
    "content": [{"text": "Paint it"}, {"text": "<hook_context>brief</hook_context>"}],
}


@pytest.mark.parametrize(
    ("name", "records", "state", "cause"),
    [
        ("claude", [ASKED], WORKING, "user"),
        ("claude", [ASKED, CALLED], WORKING, "user"),
        ("claude", [ASKED, CALLED, RESULT, SAID, {"type": "system", "subtype": "turn_duration"}], IDLE, None),
        ("claude", [ASKED, SAID, claude("user", "<command-name>/exit</command-name>")], IDLE, None),
        ("claude", [ASKED, LIMITED], FAILED, "usage_window"),
        ("claude", [ASKED, LIMITED, ASKED, SAID], IDLE, None),
        ("claude", [ASKED, CALLED, claude("user", [{"type": "text", "text": "[Request interrupted by user for tool use]"}])],
         ABORTED, "user"),
        ("claude", [ASKED, CALLED, *AFTER_CRASH], WORKING, "user"),
        ("claude", [ASKED, SAID, {**CALLED, "isSidechain": True}], IDLE, None),
        ("codex", [codex("task_started"), CODEX_ASKED], WORKING, "user"),
        ("codex", [codex("task_started"), CODEX_ASKED, codex("task_complete", last_agent_message="ok")], IDLE, None),
        ("codex", [codex("task_started"), CODEX_ASKED,
                   codex("task_complete", error={"message": CODEX_LIMIT, "codex_error_info": "usage_limit_exceeded"})],
         FAILED, "usage_window"),
        ("codex", [codex("task_started"), CODEX_ASKED, codex("turn_aborted", reason="interrupted")], ABORTED, "user"),
        ("gemini", [GEMINI_ASKED], WORKING, "user"),
        ("gemini", [GEMINI_ASKED, {"id": "2", "type": "gemini", "content": "", "toolCalls": [{"id": "c"}]}], WORKING, "user"),
        ("gemini", [GEMINI_ASKED, {"id": "2", "type": "gemini", "content": "", "thoughts": []}], WORKING, "user"),
        ("gemini", [GEMINI_ASKED, {"id": "2", "type": "gemini", "content": "Done"}], IDLE, None),
        ("gemini", [GEMINI_ASKED, {"id": "3", "type": "info", "content": "Request cancelled."}], ABORTED, "user"),
        ("gemini", [GEMINI_ASKED, {"id": "3", "type": "error", "content": "[API Error: Quota exceeded]"}], FAILED, "rate_limit"),
        ("opencode", [OPENCODE_ASKED], WORKING, "user"),
        ("opencode", [OPENCODE_ASKED, opencode("message", role="assistant", finish="tool-calls")], WORKING, "user"),
        ("opencode", [OPENCODE_ASKED, opencode("message", role="assistant", finish="stop"),
                      opencode("message", role="user", summary={})], IDLE, None),
        ("opencode", [OPENCODE_ASKED, opencode("message", role="assistant", error={
            "name": "APIError", "data": {"message": "You exceeded your current quota", "statusCode": 429}})],
         FAILED, "rate_limit"),
        ("opencode", [OPENCODE_ASKED, opencode("message", role="assistant", error={"name": "MessageAbortedError"})],
         ABORTED, "user"),
        ("copilot", [COPILOT_ASKED, {"type": "assistant.turn_start", "data": {}}], WORKING, "user"),
        ("copilot", [COPILOT_ASKED, {"type": "assistant.message", "data": {"toolRequests": [{"name": "bash"}]}},
                     {"type": "assistant.turn_end", "data": {}}], WORKING, "user"),
        ("copilot", [COPILOT_ASKED, {"type": "assistant.message", "data": {"content": "Done", "toolRequests": []}},
                     {"type": "assistant.turn_end", "data": {}}], IDLE, None),
        ("copilot", [COPILOT_ASKED, {"type": "session.error", "data": {
            "errorType": "rate_limit", "message": "429 Rate limit reached. Please try again in 5 minutes."}}],
         FAILED, "rate_limit"),
        ("qwen", [QWEN_ASKED, QWEN_ERROR], WORKING, "rate_limit"),
        ("qwen", [QWEN_ASKED, QWEN_ERROR, {"type": "assistant", "message": {"parts": [{"text": "Done"}]}}], IDLE, None),
    ],
)  # fmt: skip
def test_the_end_of_a_turn_is_read_where_the_vendor_wrote_it(name, records, state, cause):
    """Working, idle, failed and interrupted turns differ, and so does why a program that was closed had stopped."""
    turn = follow(None, [Entry(json.dumps(record), "") for record in records], vendor(name).turn)
    assert turn is not None
    assert (turn.state, turn.prompt) == (state, "Paint it")
    why = left(turn, 1794820000.0)
    assert (why.cause if why else None) == cause


def test_a_turn_that_was_answered_in_part_says_so():
    """After a tool call, a limited agent should continue, not begin again."""
    entries = [Entry(json.dumps(record), "") for record in (ASKED, CALLED, RESULT, LIMITED)]
    turn = follow(None, entries, vendor("claude").turn)
    assert turn == Turn(FAILED, WINDOW, "Paint it", answered=True)
    why = stopped(turn, 1794820000.0)
    assert why is not None
    assert (why.cause, why.resets_at) == ("usage_window", 1794825966.0)


@pytest.mark.parametrize(
    ("name", "stream", "printed"),
    [
        ("claude", [{"type": "assistant", "message": {"content": [{"type": "text", "text": "ochre"}]}},
                    {"type": "result", "subtype": "success", "result": "ochre"}], "ochre\n"),
        ("qwen", [{"type": "result", "subtype": "success", "result": "ochre"}], "ochre\n"),
        ("cursor", [{"type": "result", "subtype": "success", "result": "ochre"}], "ochre\n"),
        ("codex", [{"type": "item.completed", "item": {"type": "agent_message", "text": "First."}},
                   {"type": "item.completed", "item": {"type": "command_execution", "command": "ls"}},
                   {"type": "item.completed", "item": {"type": "agent_message", "text": "ochre"}},
                   {"type": "turn.completed"}], "ochre\n"),
        ("gemini", [{"type": "message", "role": "user", "content": "go"},
                    {"type": "message", "role": "assistant", "content": "och", "delta": True},
                    {"type": "message", "role": "assistant", "content": "re", "delta": True},
                    {"type": "result", "status": "success"}], "ochre\n"),
        ("copilot", [{"type": "assistant.message_delta", "data": {"deltaContent": "ochre"}},
                     {"type": "assistant.message", "data": {"content": "ochre", "toolRequests": []}},
                     {"type": "result", "exitCode": 0}], "ochre\n"),
        ("opencode", [{"type": "step_start", "part": {}}, {"type": "text", "part": {"type": "text", "text": "ochre"}}],
         "ochre\n"),
    ],
)  # fmt: skip
def test_a_stream_is_printed_as_the_program_prints_its_text(name, stream, printed):
    """Without a terminal, standard output is what the program itself would print; a line that is no JSON stays."""
    printer = Printer(vendor(name))
    said = [printer.line("a warning"), *(printer.line(json.dumps(record)) for record in stream), printer.end()]
    assert "".join(said) == f"a warning\n{printed}"
