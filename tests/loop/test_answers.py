"""Answers as vendors give them on a bad day or with their own tools: none is refused, lost, or sent where it is refused."""

import json
from typing import Any

import pytest

from onrecord.errors import InvalidInput
from tests.loop.replies import completion, message
from tests.loop.test_formats import FORMATS, PICTURE, adapter, walked

SAID = {"type": "message", "id": "m1", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]}  # fmt: skip
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": []}
SHELL = {"type": "shell_call", "id": "sh_1", "call_id": "c1", "status": "completed", "action": {"commands": ["ls"]}}
LOCAL = {"type": "local_shell_call", "id": "ls_1", "call_id": "c1", "status": "completed",
         "action": {"type": "exec", "command": ["ls"], "env": {}}}  # fmt: skip
PATCH = {"type": "apply_patch_call", "id": "ap_1", "call_id": "c1", "status": "completed",
         "operation": {"type": "delete_file", "path": "a.py"}}  # fmt: skip
CLICK = {"type": "computer_call", "id": "cu_1", "call_id": "c1", "status": "completed", "pending_safety_checks": [],
         "action": {"type": "click", "button": "left", "x": 1, "y": 2}}  # fmt: skip
SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}


def response(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"model": "gpt-x", "output": list(parts), **more}


def claude(*parts: Any, stop: str = "end_turn") -> dict[str, Any]:
    return message() | {"content": list(parts), "stop_reason": stop}


def gemini(*parts: Any) -> dict[str, Any]:
    return {"candidates": [{"content": {"role": "model", "parts": list(parts)}}], "model_version": "gemini-x"}


def accepted(made: Any, format: str) -> Any:
    """The messages, if the vendor's SDK takes them."""
    walked(adapter(format).validate_python(made.messages))
    return made.messages


# Paused steps of Anthropic's


def test_a_paused_answer_is_sent_back_and_goes_on(session):
    """An answer that stops with `pause_turn` is not the last word: it goes back as it is, and the loop continues."""
    with session.turn() as turn:
        turn.user("search")
        assert turn.reply(claude(SEARCH, stop="pause_turn")) == []
        assert not turn.done
        assert accepted(turn.messages("anthropic"), "anthropic")[-1] == {"role": "assistant", "content": [SEARCH]}
        turn.reply(claude(FOUND, {"type": "text", "text": "Still looking."}, stop="pause_turn"))
        assert not turn.done
        turn.reply(claude({"type": "text", "text": "Found."}))
        assert turn.done
        made = turn.messages("anthropic").messages
    assert [part["type"] for one in made[1:] for part in one["content"]] == [
        "server_tool_use", "web_search_tool_result", "text", "text",
    ]  # fmt: skip
    assert "stop_reason" not in str(made)


def test_a_paused_turn_that_is_resumed_is_still_paused(store, session):
    """After a crash in the middle of a paused step, the turn is not done."""
    turn = session.turn(id="x")
    turn.user("search")
    turn.reply(claude(SEARCH, {"type": "text", "text": "."}, stop="pause_turn"))
    turn.abort("killed")
    assert not session.turn(resume=True).done


def test_an_open_call_of_a_server_tool_is_not_sent_later(session):
    """Once the user has spoken, Anthropic refuses a call of its own tool without a result, and a result without a call."""
    with session.turn() as turn:
        turn.user("search")
        turn.reply(claude({"type": "text", "text": "I look."}, SEARCH, stop="pause_turn"))
        turn.user("never mind")
        turn.reply(claude(FOUND | {"tool_use_id": "srvtoolu_9"}, {"type": "text", "text": "Fine."}))
        made = turn.messages("anthropic").messages
    assert [one["content"] for one in made] == [
        "search", [{"type": "text", "text": "I look."}], "never mind", [{"type": "text", "text": "Fine."}],
    ]  # fmt: skip


def test_a_program_that_calls_tools_keeps_its_call(session):
    """A program that Anthropic runs may call tools of ours: its own call stays without a result until the step ends."""
    program = SEARCH | {"name": "code_execution", "input": {"code": "pay(17)"}}
    caller = {"type": "code_execution_20250825", "tool_id": program["id"]}
    with session.turn() as turn:
        turn.user("pay")
        for call in ("t1", "t2"):
            called = {"type": "tool_use", "id": call, "name": "pay", "input": {}, "caller": caller}
            turn.reply(claude(*([program] if call == "t1" else []), called, stop="tool_use"))
            turn.tool(call, "paid")
        assert turn.messages("anthropic")[1]["content"][0] == program
        turn.user("stop")
        assert program not in turn.messages("anthropic")[1]["content"]


def test_a_pause_of_an_older_version_is_seen(session):
    """Older versions did not record why an answer stopped: one that ends with the call of a server tool is paused."""
    kept = {"format": "anthropic", "message": {"role": "assistant", "content": [SEARCH]}, "spans": 1}
    with session.turn() as turn:
        turn.user("search")
        turn.add({"role": "assistant", "content": [SEARCH], "verbatim": kept})
        assert not turn.done
        assert turn.messages("anthropic")[-1] == kept["message"]


# OpenAI's own tools


@pytest.mark.parametrize("how", ["answered", "failed", "open"])
@pytest.mark.parametrize("call", [SHELL, LOCAL, PATCH])
def test_calls_of_openais_own_tools_are_calls(session, call, how):
    """What the client runs is a call like any other, and its result has the type that belongs to the call."""
    with session.turn() as turn:
        turn.user("go")
        (found,) = turn.reply(response(THOUGHT, call))
        assert found == {
            "id": "c1", "name": call["type"].removesuffix("_call"),
            "arguments": call.get("action") or call.get("operation"),
        }  # fmt: skip
        assert not turn.done
        assert turn.calls == [found]
        if how != "open":
            turn.tool("c1", "a.py", error=how == "failed")
        turn.user("and?")
        made = accepted(turn.messages("openai-responses"), "openai-responses")
        others = [accepted(turn.messages(format), format) for format in ("openai", "anthropic", "gemini")]
    assert made[1:3] == [THOUGHT, call]
    result = made[3]
    assert result["type"] == f"{call['type']}_output"
    assert result.get("call_id", result.get("id")) == "c1"
    assert ("no result on record" if how == "open" else "a.py") in str(result["output"])
    if call is PATCH:
        assert result["status"] == ("completed" if how == "answered" else "failed")
    if call is SHELL:
        assert result["output"][0]["outcome"]["exit_code"] == (0 if how == "answered" else 1)
    assert len(made) == 5
    assert all("c1" in str(other) or "function_call" in str(other) for other in others)


SHELL_RESULT = {"type": "shell_call_output", "call_id": "c1",
                "output": [{"stdout": "a.py", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}  # fmt: skip
LOCAL_RESULT = {"type": "local_shell_call_output", "id": "c1", "output": "a.py"}
PATCH_RESULT = {"type": "apply_patch_call_output", "call_id": "c1", "status": "completed", "output": "a.py"}
SHOT = {"type": "computer_call_output", "call_id": "c1",
        "output": {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PICTURE}"}}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "result"), [(SHELL, SHELL_RESULT), (LOCAL, LOCAL_RESULT), (PATCH, PATCH_RESULT), (CLICK, SHOT)]
)
def test_results_of_openais_own_tools_go_back_word_for_word(session, call, result):
    """An output of one of OpenAI's own tools can be added as it is; others read its text or see its picture."""
    with session.turn() as turn:
        turn.user("go")
        turn.reply(response(THOUGHT, call))
        turn.add(result)
        assert turn.calls == []
        assert accepted(turn.messages("openai-responses"), "openai-responses")[1:] == [THOUGHT, call, result]
        (said,) = accepted(turn.messages("anthropic"), "anthropic")[-1]["content"]
    assert said["tool_use_id"] == "c1"
    assert (PICTURE if call is CLICK else "a.py") in str(said["content"])


def test_a_call_that_cannot_be_answered_in_text_is_left_out(session):
    """A click without its screenshot is not sent, nor the thoughts that led to it alone; one with a text is, as a function."""
    with session.turn() as turn:
        turn.user("go")
        turn.reply(response(SAID, THOUGHT, CLICK))
        assert accepted(turn.messages("openai-responses"), "openai-responses")[1:] == [SAID]
        turn.tool("c1", "the screen is black")
        call, result = accepted(turn.messages("openai-responses"), "openai-responses")[2:]
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "computer", CLICK["action"])
    assert result == {"type": "function_call_output", "call_id": "c1", "output": "the screen is black"}


def test_what_the_vendor_ran_itself_is_no_call(session):
    """A shell call in a container of OpenAI's comes with its result: nothing is left to run, and both go back."""
    with session.turn() as turn:
        turn.user("go")
        assert turn.reply(response(SHELL, SHELL_RESULT, SAID)) == []
        assert turn.done
        assert turn.messages("openai-responses")[1:] == [SHELL, SHELL_RESULT, SAID]


ASKED = {"type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "server_label": "bank", "arguments": '{"a": 1}'}
APPROVED = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


@pytest.mark.parametrize("answered", [True, False])
def test_a_request_for_approval_is_not_lost(session, answered):
    """A request for approval goes back with its response; without one it is sent as text."""
    with session.turn() as turn:
        turn.user("go")
        assert turn.reply(response(THOUGHT, ASKED)) == []
        assert turn.items[-1]["content"] == '[asks for approval to call pay of bank with {"a": 1}]'
        if answered:
            turn.add(APPROVED)
        else:
            turn.user("and?")
        made = accepted(turn.messages("openai-responses"), "openai-responses")
        assert "asks for approval" in str(accepted(turn.messages("anthropic"), "anthropic"))
    if answered:
        assert made[1:] == [THOUGHT, ASKED, APPROVED]
    else:
        assert [part["type"] for part in made] == ["message"] * 3
        assert "asks for approval" in made[1]["content"]


# Answers without text

DRAWN = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": PICTURE}
PIXELS = {"inline_data": {"mime_type": "image/png", "data": PICTURE}}
CODE = {"executable_code": {"code": "print(6 * 7)", "language": "PYTHON"}}
OUTPUT = {"code_execution_result": {"outcome": "OUTCOME_OK", "output": "42\n"}}
SPOKEN = completion()
SPOKEN["choices"][0]["message"]["audio"] = {"id": "audio_1", "data": "AA", "expires_at": 9, "transcript": "Good day"}
WORDLESS = {
    "image": ("openai-responses", response(DRAWN), ["[image]"]),
    "pixels": ("gemini", gemini(PIXELS), ["[image]"]),
    "code": ("gemini", gemini(CODE, OUTPUT), ["print(6 * 7)", "42"]),
    "sound": ("openai", SPOKEN, ["Good day"]),
}


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("what", WORDLESS)
def test_an_answer_without_text_is_sent(session, what, format):
    """An image, code or sound is an answer: it goes back to its own vendor as it came, and as text to others."""
    spoken, answer, words = WORDLESS[what]
    with session.turn() as turn:
        turn.user("draw")
        turn.reply(answer)
        turn.user("and?")
        made = accepted(turn.messages(format), format)
    assert len(made) == 3
    if spoken != format:
        assert all(word in str(made[1]) for word in words)
    elif what == "sound":
        assert made[1] == {"role": "assistant", "audio": {"id": "audio_1"}}  # the API takes no more than its id
    elif what == "image":
        assert made[1] == DRAWN
    elif what == "code":
        assert made[1]["parts"] == [CODE, OUTPUT]
    else:
        assert made[1]["parts"] == [PIXELS]


@pytest.mark.parametrize(
    ("format", "answer"),
    [("openai-responses", response(DRAWN | {"result": PICTURE * 10_000})),
     ("openai", SPOKEN | {"choices": [{"message": {"role": "assistant", "audio": {
         "id": "a", "data": PICTURE * 10_000, "expires_at": 9, "transcript": "x"}}}]})],
)  # fmt: skip
def test_what_is_no_text_does_not_count_as_text(session, format, answer):
    """The data of an image or of sound that a model made does not use up the tokens of a context."""
    with session.turn() as turn:
        turn.user("draw")
        turn.reply(answer)
        turn.user("and?")
        assert turn.messages(format, tokens=10_000).tokens < 5_000


# What older versions recorded

FORMER: list[tuple[str, dict[str, Any], Any]] = [
    ("openai", SPOKEN["choices"][0]["message"] | {"content": None}, None),
    ("openai-responses", response(DRAWN), ""),
    ("openai-responses", response(SAID, SHELL), "Looking."),
    ("gemini", gemini({"text": "See: "}, PIXELS)["candidates"][0]["content"], "See: "),
    ("gemini", gemini(CODE, OUTPUT, {"text": "42."})["candidates"][0]["content"], "42."),
]


@pytest.mark.parametrize(("format", "spoken", "content"), FORMER)
def test_what_older_versions_recorded_goes_back_word_for_word(session, format, spoken, content):
    """A log that an older version wrote, which saw only texts in these answers, is sent to their vendor as they came."""
    kept = {"format": format, "message": spoken, "spans": 1}
    with session.turn() as turn:
        turn.user("go")
        turn.add({"role": "assistant", "content": content, "verbatim": kept})
        turn.user("and?")
        made = accepted(turn.messages(format), format)
    if format == "openai-responses":
        assert made[1 : 1 + len(spoken["output"])] == spoken["output"]
        if SHELL in made:
            assert [part["type"] for part in made[3:]] == ["shell_call_output", "message"]
    elif format == "gemini":
        assert made[1] == spoken
    else:
        assert made[1]["audio"] == {"id": "audio_1"}


def test_a_long_invented_id_of_an_older_version_still_fits(session):
    """Older versions invented longer ids for Gemini's calls: such a call still goes back without one, as it came."""
    name = "search_customer_invoices_by_number_and_date"
    content = {"role": "model", "parts": [{"function_call": {"name": name, "args": {"a": 1}}}]}
    call = {"id": f"{name}-1", "name": name, "arguments": {"a": 1}}
    kept = {"format": "gemini", "message": content, "spans": 1}
    with session.turn() as turn:
        turn.user("go")
        turn.add({"role": "assistant", "content": "", "tool_calls": [call], "verbatim": kept})
        turn.tool(f"{name}-1", "r")
        assert turn.messages("gemini")[1] == content


# Responses that are no answer


@pytest.mark.parametrize("status", ["queued", "in_progress", "failed", "cancelled"])
def test_a_response_without_an_answer_is_refused(session, status):
    """A response that is not finished, or failed, is refused with its status, the vendor's words and what to do."""
    error = {"code": "server_error", "message": "try later"} if status == "failed" else None
    with session.turn() as turn:
        turn.user("go")
        with pytest.raises(InvalidInput, match=status) as refused:
            turn.reply(response(status=status, error=error))
        assert len(turn.items) == 1
    assert ("server_error: try later" in refused.value.message) is (status == "failed")
    assert ("retrieve" in refused.value.hint) is (status in ("queued", "in_progress"))


def test_a_blocked_prompt_says_so(session):
    """Gemini that blocks a prompt gives no candidates: the error says so, and why."""
    from google.genai import types

    feedback = types.GenerateContentResponsePromptFeedback.model_validate(
        {"block_reason": "SAFETY", "block_reason_message": "not this"}
    )
    with session.turn() as turn:
        turn.user("go")
        for answer in (types.GenerateContentResponse(prompt_feedback=feedback),
                       {"candidates": [], "promptFeedback": {"blockReason": "SAFETY", "blockReasonMessage": "not this"}}):  # fmt: skip
            with pytest.raises(InvalidInput, match=r"blocked the prompt: SAFETY \(not this\)"):
                turn.reply(answer)


# Images of users


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("text", ["What is this?", ""])
@pytest.mark.parametrize("spoken", ["gemini", "gemini-sdk", "openai-responses"])
def test_an_image_of_the_user_goes_to_every_vendor(session, spoken, text, format):
    """An image in a message of Gemini's or of the Responses API, beside a text or alone, is seen by every vendor."""
    from google.genai import types

    data = b"\xfb\xff\xfe image"
    if spoken == "openai-responses":
        shown: list[Any] = [
            {"type": "input_image", "image_url": "data:image/png;base64,+//+IGltYWdl", "detail": "auto"}
        ]
        said: Any = {"type": "message", "role": "user",
                     "content": ([{"type": "input_text", "text": text}] if text else []) + shown}  # fmt: skip
    else:
        parts = [types.Part(text=text)] if text else []
        said = types.Content(
            role="user", parts=[*parts, types.Part(inline_data=types.Blob(mime_type="image/png", data=data))]
        )
        if spoken == "gemini":
            said = said.model_dump(exclude_none=True, mode="json")
    with session.turn() as turn:
        turn.add(said, format=spoken.removesuffix("-sdk"))
        (made,) = accepted(turn.messages(format), format)
    assert text in str(made)
    if format == "gemini":
        assert types.Content.model_validate(made).parts[-1].inline_data.data == data
    else:
        assert "+//+IGltYWdl" in str(made)
    if format == spoken == "openai-responses":
        assert made == said


@pytest.mark.parametrize("format", ["anthropic", "openai-responses", "openai", "gemini"])
def test_an_image_in_a_result_is_seen(session, format):
    """An image that a tool returned goes to the vendors whose results take images; others read that there is one."""
    result = {"type": "function_call_output", "call_id": "c1", "output": [
        {"type": "input_text", "text": "here"}, {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"},
    ]}  # fmt: skip
    with session.turn() as turn:
        turn.user("go")
        turn.reply(completion(call="c1", name="shot"))
        turn.add(result)
        made = accepted(turn.messages(format), format)[-1]
    assert "here" in str(made)
    assert ("https://x/y.png" if format in ("anthropic", "openai-responses") else "[image]") in str(made)


# Small things


@pytest.mark.parametrize("arguments", ["", "null", "  "])
def test_a_call_without_arguments_has_none(session, arguments):
    """A call whose arguments are empty or null is one without arguments, for every vendor."""
    answer = completion(call="c1", name="now")
    answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] = arguments
    with session.turn() as turn:
        turn.user("go")
        turn.reply(answer)
        turn.tool("c1", "12:00")
        assert turn.messages("anthropic")[1]["content"][0]["input"] == {}
        assert turn.messages("gemini")[1]["parts"][0]["function_call"]["args"] == {}
        assert turn.messages("openai-responses")[1]["arguments"] == "{}"
        assert turn.messages("openai")[1]["tool_calls"][0]["function"]["arguments"] == arguments


def test_empty_text_is_not_sent_back_to_anthropic(session):
    """Anthropic says empty text beside a call, and refuses it when it comes back: it is left out."""
    call = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
    with session.turn() as turn:
        turn.user("go")
        turn.reply(claude({"type": "text", "text": ""}, call))
        turn.tool("t1", "r")
        turn.reply(claude({"type": "text", "text": " \n"}))
        turn.user("and?")
        made = turn.messages("anthropic").messages
    assert made[1] == {"role": "assistant", "content": [call]}
    assert [one["role"] for one in made] == ["user", "assistant", "user"]


def test_what_is_left_out_for_anthropic_changes_nothing_before_it(session):
    """The beginning of a prompt stays as it is when a later message is left out: vendors cache it."""
    said = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "r"}]},
        {"role": "user", "content": [{"type": "text", "text": "note"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "k"}]},
    ]
    with session.turn() as turn:
        for message in said:
            turn.add(message, format="anthropic")
        before = turn.messages("anthropic").messages
        turn.add({"role": "user", "content": [{"type": "text", "text": " "}]}, format="anthropic")
        assert turn.messages("anthropic").messages == before
        turn.abort("enough")
