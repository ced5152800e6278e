"""Chat templates of real models: five turns with tools, continued by ids, against the template's own rendering."""

# ruff: noqa: RUF001  # DeepSeek's special tokens have full-width bars

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from onrecord.errors import InvalidInput
from onrecord.rollout.ids import sequence
from onrecord.rollout.tokens import TemplateTokenizer
from onrecord.rollout.trajectory import LinearTrajectory, Policy
from onrecord.rollout.turns import ChatRequest, Reply

PLACE = Path(__file__).with_name("templates")
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
        },
    }
]
LLAMA = """{{- bos_token }}{%- set ns = namespace(first=true) %}
{%- for message in messages %}
    {%- if message.tool_calls %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}
        {%- if message.tool_calls | length != 1 %}{{- raise_exception('One call at a time.') }}{% endif %}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "parameters": ' + (call.function.arguments | tojson) + '}' }}
        {%- endfor %}{{- '<|eot_id|>' }}
    {%- elif message.role == 'tool' %}
        {{- '<|start_header_id|>ipython<|end_header_id|>\\n\\n' + (message.content | tojson) + '<|eot_id|>' }}
    {%- else %}
        {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' }}
        {%- if tools and message.role == 'user' and ns.first %}
            {%- set ns.first = false %}{{- 'Given these functions: ' + (tools | tojson(indent=4)) + '\\n\\n' }}
        {%- endif %}{{- message.content | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif -%}
"""


class Model(NamedTuple):
    """What a test needs to know about a model."""

    template: str
    special: str
    """Its special tokens, as in its tokenizer."""
    stop: str
    """With which it ends a turn."""
    stop_of_call: str = ""
    """With which it ends a turn that calls a tool, if that is another one."""
    bos: str = ""
    arguments: dict[str, Any] = {}  # noqa: RUF012  # never changed
    thinks: bool = False
    trim: int = 0
    """How many trailing ids may be replaced: the template writes another end of a turn than the model samples."""
    calls_in_text: bool = False
    """Its template does not render tool calls: they are part of the text."""
    forgets: str = ""
    """What its template writes in the first round of tool calls only: it sets a flag and never clears it."""
    moves: str = ""
    """What the template moves to later messages; on record it stays where the model saw it."""


CHATML = "<|im_start|> <|im_end|> <|endoftext|>"
HARMONY = "<|start|> <|end|> <|message|> <|channel|> <|call|> <|return|> <|constrain|>"
MODELS = {
    "Qwen2.5": Model("qwen2_5.jinja", CHATML, "<|im_end|>"),
    "Qwen3, thinking": Model("qwen3.jinja", CHATML, "<|im_end|>", thinks=True),
    "Qwen3, not thinking": Model("qwen3.jinja", CHATML, "<|im_end|>", arguments={"enable_thinking": False}),
    "Llama 3": Model(
        LLAMA, "<|start_header_id|> <|end_header_id|> <|eot_id|> <|eom_id|>", "<|eot_id|>", "<|eom_id|>", trim=1
    ),
    "GLM-4.5": Model(
        "glm4_5.jinja",
        "[gMASK] <sop> <|user|> <|assistant|> <|observation|> <|system|>",
        "<|user|>",
        "<|observation|>",
        thinks=True,
    ),
    "Kimi K2": Model(
        "kimi_k2.jinja", "<|im_user|> <|im_assistant|> <|im_system|> <|im_middle|> <|im_end|>", "<|im_end|>"
    ),
    "DeepSeek V3": Model(
        "deepseekv3.jinja",
        "<｜begin▁of▁sentence｜> <｜end▁of▁sentence｜> <｜User｜> <｜Assistant｜>",
        "<｜end▁of▁sentence｜>",
        bos="<｜begin▁of▁sentence｜>",
        thinks=True,
        forgets="<｜Assistant｜>(?=<｜tool▁calls▁begin｜>)|<｜tool▁calls▁begin｜>|<｜tool▁outputs▁begin｜>"
        "|\n(?=<｜tool▁call▁begin｜>)",
    ),
    "gpt-oss": Model("gpt_oss.jinja", HARMONY, "<|return|>", "<|call|>", trim=1),
    "Mistral Nemo": Model(
        "mistral_nemo.jinja",
        "<s> </s> [INST] [/INST] [TOOL_CALLS] [TOOL_RESULTS] [/TOOL_RESULTS]",
        "</s>",
        bos="<s>",
        moves=r"\[AVAILABLE_TOOLS\].*?\[/AVAILABLE_TOOLS\]|Be brief\.\n\n",
    ),
    "SmolLM3": Model("smollm3.jinja", CHATML, "<|im_end|>", arguments={"enable_thinking": False}, calls_in_text=True),
}


def made(model, **options):
    """A tokenizer of single bytes with the model's special tokens and its template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    encoder = Tokenizer(models.BPE({letter: number for number, letter in enumerate(alphabet)}, []))
    encoder.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    encoder.decoder = decoders.ByteLevel()
    encoder.add_special_tokens([AddedToken(token, special=True) for token in model.special.split()])
    text = model.template if "{" in model.template else (PLACE / model.template).read_text(encoding="utf-8")
    stops = [encoder.token_to_id(token) or 0 for token in (model.stop, model.stop_of_call) if token]
    special = {"bos_token": model.bos, "eos_token": model.stop}
    clock = datetime(2026, 1, 2, tzinfo=UTC)
    return TemplateTokenizer(encoder.to_str(), text, special, stops=stops, now=lambda: clock, **options)


def calling(number):
    function = {"name": "add", "arguments": f'{{"a": {number}}}'}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"call{number:05}", "type": "function", "function": function}],
    }


def rendered(tokenizer, model, messages, *, ready=True):
    """What the template itself writes for the whole conversation."""
    bound = tokenizer.with_arguments(model.arguments) if model.arguments else tokenizer
    return bound._text(messages, TOOLS, ready=ready)


THOUGHT = "I add."
BRIEF = {"role": "system", "content": "Be brief."}


def asks(text):
    return {"role": "user", "content": text}


def result(number):
    return {"role": "tool", "name": "add", "tool_call_id": f"call{number:05}", "content": "42"}


def says(text):
    return {"role": "assistant", "content": text}


CONVERSATION = [
    BRIEF, asks("Add."), calling(1), result(1), says("It is 42."), asks("Again."), calling(2), result(2), says("42."),
    asks("Thanks."), says("Welcome."), asks("Bye."),
]  # fmt: skip


def conversation(model):
    """The conversation, with calls as this model's clients send them."""
    return [
        says(f"<tool_call>{message['tool_calls'][0]['function']['arguments']}</tool_call>")
        if model.calls_in_text and message.get("tool_calls")
        else message
        for message in CONVERSATION
    ]


def comparable(model, text):
    """A rendering without thinking, which templates strip from earlier turns, and without what they move."""
    text = re.sub(r"<think>.*?</think>\s*|<think>\s*$", "", text, flags=re.DOTALL)
    return re.sub(model.moves, "", text, flags=re.DOTALL) if model.moves else text


def alike(model, text):
    """The same without what the template forgets after the first round of tool calls."""
    return re.sub(model.forgets, "", text) if model.forgets else text


def sampled(tokenizer, model, messages, number):
    """What the model says as this message: what the template writes for it, and the model's own end of a turn."""
    before, message = messages[:2], messages[number]
    shown = comparable(model, rendered(tokenizer, model, [*before, *messages[number : number + 2]], ready=False))
    start = comparable(model, rendered(tokenizer, model, before))
    assert shown.startswith(start)
    body = re.split("|".join(map(re.escape, model.special.split())), shown[len(start) :])
    said = next(part for part in body if "42" in part or "Welcome" in part or '"a"' in part or "arg_key" in part)
    text = shown[len(start) : shown.index(said, len(start)) + len(said)]
    stop = (model.stop_of_call if message.get("tool_calls") else "") or model.stop
    if model.thinks:
        opened = rendered(tokenizer, model, messages[:number]).endswith("<think>\n")
        lead = text[: len(text) - len(text.lstrip())]
        text = lead + ("" if opened else "<think>\n") + f"{THOUGHT}\n</think>\n\n" + text.lstrip()
    return text + stop


@pytest.mark.parametrize("name", MODELS)
def test_five_turns_with_tools_are_exact(name):
    """Each prompt is the ids before it, what was sampled, and what the template writes next: nothing is rendered again.

    Its text is what the template writes for the whole conversation, apart from thinking (it stays, as sampled) and from
    what the table in the guide names.
    """
    model = MODELS[name]
    tokenizer = made(model, replace_stop=model.trim > 0)
    trajectory = LinearTrajectory(Policy(max_trim_tokens=model.trim))
    options = {"chat_template_kwargs": model.arguments} if model.arguments else {}
    messages = conversation(model)
    turns = [number for number, message in enumerate(messages) if message["role"] == "assistant"]
    stored: list[int] = []
    for number in turns:
        prepared = trajectory.prepare(ChatRequest(messages[:number], TOOLS, options), tokenizer)
        prompt = list(prepared.prompt_ids)
        kept = max(0, len(stored) - model.trim)
        assert prompt[:kept] == stored[:kept]
        whole = comparable(model, rendered(tokenizer, model, messages[:number]))
        ours = comparable(model, tokenizer.decode(prompt))
        assert (ours == whole) is (not model.forgets or number <= turns[2])
        assert alike(model, ours) == alike(model, whole)
        ids = list(tokenizer._tokenized(sampled(tokenizer, model, messages, number), []).ids)
        trajectory.update_pretokenized_state(prepared, Reply(messages[number], ids, [-1.0] * len(ids), "stop"))
        stored = list(sequence(trajectory.records))
    assert len(turns) == 5
    assert tokenizer.decode(stored).count(THOUGHT) == (5 if model.thinks else 0)


def two_calls():
    """A turn with two calls, and its results."""
    return {**calling(1), "tool_calls": [*calling(1)["tool_calls"], *calling(2)["tool_calls"]]}, [result(1), result(2)]


@pytest.mark.parametrize("name", MODELS)
def test_two_calls_in_one_turn_get_their_results(name):
    """What follows two calls is what follows one, and both results, also if the template shows or allows one call."""
    model = MODELS[name]
    tokenizer = made(model)
    turn, results = two_calls()
    after_one = tokenizer.decode(tokenizer.suffix([asks("Add."), calling(1)], results).ids)
    if model.calls_in_text:
        turn = says("<tool_call></tool_call>")
    suffix = tokenizer.decode(tokenizer.suffix([asks("Add."), turn], results, TOOLS).ids)
    assert suffix == after_one
    assert suffix.count("42") == 2


@pytest.mark.parametrize("name", ["Llama 3", "gpt-oss"])
def test_a_turn_with_two_calls_blocks_nothing(name):
    """A session whose model called two tools at once continues, with a template that allows or shows only one call."""
    tokenizer, trajectory = made(MODELS[name]), LinearTrajectory()
    turn, results = two_calls()
    first = trajectory.prepare(ChatRequest([asks("Add.")], TOOLS), tokenizer)
    trajectory.update_pretokenized_state(first, Reply(turn, [1], [-1.0], "tool_calls"))
    again = trajectory.prepare(ChatRequest([asks("Add."), turn, *results], TOOLS), tokenizer)
    assert tokenizer.decode(again.tail).count("42") == 2


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("DeepSeek V3", "system"),
        ("gpt-oss", "system"),
        ("DeepSeek V3", "developer"),
        ("gpt-oss", "developer"),
        ("GLM-4.5", "developer"),
        ("Qwen3, thinking", "developer"),
    ],
)
def test_a_message_that_the_template_leaves_out_is_refused(name, role):
    """A message after a generated turn that the model would not see is refused, alone and among others."""
    tokenizer = made(MODELS[name])
    before, lost = [asks("Add."), says("42.")], {"role": role, "content": "Be brief."}
    for appended in ([lost], [lost, asks("Again.")], [asks("Again."), lost], [asks("Be brief."), lost]):
        with pytest.raises(InvalidInput, match=f"leaves out a message of role '{role}'"):
            tokenizer.suffix(before, appended)


@pytest.mark.parametrize("name", ["Llama 3", "Qwen2.5", "Kimi K2", "GLM-4.5", "Qwen3, thinking"])
def test_a_system_message_that_the_template_shows_is_accepted(name):
    """A system message after a generated turn is in the prompt, where the template writes it there."""
    tokenizer = made(MODELS[name])
    suffix = tokenizer.suffix([asks("Add."), says("42.")], [BRIEF, asks("Again.")])
    assert "Be brief." in tokenizer.decode(suffix.ids)


def test_a_refusal_is_that_of_the_turn_on_record():
    """If a template refuses new messages, the error says why, and not what is wrong with a dummy turn."""
    wrong = {**result(1), "tool_call_id": "7"}
    with pytest.raises(InvalidInput, match="alphanumeric strings with length 9"):
        made(MODELS["Mistral Nemo"]).suffix([asks("Add."), calling(1)], [wrong])


def fifth_prompt(name):
    """What is on record before the last turn, and what the template would write for the same messages."""
    model = MODELS[name]
    tokenizer = made(model)
    trajectory = LinearTrajectory(Policy())
    messages = conversation(model)
    for number, message in enumerate(messages):
        if message["role"] == "assistant":
            prepared = trajectory.prepare(ChatRequest(messages[:number], TOOLS), tokenizer)
            ids = list(tokenizer._tokenized(sampled(tokenizer, model, messages, number), []).ids)
            trajectory.update_pretokenized_state(prepared, Reply(message, ids, [-1.0] * len(ids), "stop"))
    return tokenizer.decode(list(prepared.prompt_ids)), rendered(tokenizer, model, messages[: number - 1])


def test_why_mistral_nemo_is_not_exact():
    """Its template writes tools and system message before the last user message: no history by ids can move them."""
    ours, theirs = fifth_prompt("Mistral Nemo")
    tools, brief = "[AVAILABLE_TOOLS]", "Be brief."
    assert (ours.count(tools), ours.count(brief)) == (theirs.count(tools), theirs.count(brief)) == (1, 1)
    assert ours.index(tools) < ours.index("Add.") < ours.index("Again.") < ours.index("Thanks.")
    assert theirs.index("Again.") < theirs.index(tools) < theirs.index(brief) < theirs.index("Thanks.")


def test_why_deepseek_v3_is_not_exact():
    """Its template opens calls and results in the first round only; on record, each round is as the first."""
    ours, theirs = fifth_prompt("DeepSeek V3")
    for mark in ("<｜tool▁calls▁begin｜>", "<｜tool▁outputs▁begin｜>"):
        assert (ours.count(mark), theirs.count(mark)) == (2, 1)
    for mark in ("<｜tool▁calls▁end｜>", "<｜tool▁outputs▁end｜>"):
        assert (ours.count(mark), theirs.count(mark)) == (2, 2)


@pytest.mark.parametrize("name", ["Llama 3", "gpt-oss"])
def test_another_end_of_a_turn_stays_as_it_was_sampled(name):
    """Without leave to trim, the id with which the model ended its turn stays, and no second end follows it."""
    model = MODELS[name]
    tokenizer = made(model)
    stop = tokenizer._encoder.token_to_id(model.stop_of_call if name == "Llama 3" else model.stop)
    suffix = tokenizer.suffix([asks("Add."), says("42.")], [asks("Again.")]).ids
    assert tokenizer.repair([7, stop], suffix).skip == 1
    assert tokenizer.repair([7], suffix).skip == 0, "a turn that was cut off gets the template's end"
    assert made(model, replace_stop=True).repair([7, stop], suffix).drop == 1


def test_arguments_of_the_template_are_honoured_and_checked():
    """`chat_template_kwargs` reach the template and are part of the prepared turn; reserved names are refused."""
    tokenizer = made(MODELS["Qwen3, thinking"])
    asked = ChatRequest([asks("Add.")], None, {"chat_template_kwargs": {"enable_thinking": False}})
    prepared = LinearTrajectory().prepare(asked, tokenizer)
    assert tokenizer.decode(prepared.prompt_ids).endswith("<think>\n\n</think>\n\n")
    assert prepared.template == {"enable_thinking": False}
    wrongs: list[Any] = [{"messages": []}, {"a b": 1}, ["x"]]
    for wrong in wrongs:
        with pytest.raises(InvalidInput, match="chat_template_kwargs"):
            LinearTrajectory().prepare(ChatRequest([asks("Add.")], None, {"chat_template_kwargs": wrong}), tokenizer)


def test_other_tools_than_the_model_saw_are_refused():
    """Tools that change after the first turn are refused, unless the policy allows them."""
    tokenizer = made(MODELS["Qwen2.5"])
    for allowed in (False, True):
        trajectory = LinearTrajectory(Policy(new_tools=allowed))
        first = trajectory.prepare(ChatRequest([asks("Add.")], TOOLS), tokenizer)
        trajectory.update_pretokenized_state(first, Reply(says("42."), [1], [-1.0], "stop"))
        later = ChatRequest([asks("Add."), says("42."), asks("Again.")], None)
        if allowed:
            trajectory.prepare(later, tokenizer)
        else:
            with pytest.raises(InvalidInput, match="other tools"):
                trajectory.prepare(later, tokenizer)
        trajectory.prepare(later._replace(tools=TOOLS), tokenizer)


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{% for m in messages %}{{ m.content is defined }}{{ 'tool_calls' in m }}{% endfor %}", "FalseFalse"),
        ("{% for m in messages %}{{ 'a' + m.content }}{% endfor %}", "a"),
        (
            "{% for m in messages %}{% if m.content is none %}N{% else %}{{ '' + m.content }}{% endif %}{% endfor %}",
            "N",
        ),
        ("{% for m in messages %}{{ m.thinking }}{{ m.reasoning_content }}{% endfor %}", "Hm.Hm."),
        ("{{ messages[0].content | tojson(indent=2) }}", '"<é>"'),
        ("{{ {'b': 1, 'a': 2} | tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{{ 'é' | tojson(ensure_ascii=true) }}", '"\\u00e9"'),
        ("{% generation %}{{ messages[0].content }}{% endgeneration %}!", "<é>!"),
        ("{{ strftime_now('%d %b %Y') }}", "02 Jan 2026"),
        ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{% endfor %}x", "x"),
    ],
)
def test_templates_find_what_transformers_gives_them(template, text):
    """`tojson` with its arguments, `{% generation %}`, `strftime_now` and loop controls work as in Transformers.

    Fields that are null are left out, and thinking has every name under which a template may look for it. A template
    that fails without content gets a null or empty one.
    """
    tokenizer = made(MODELS["Qwen2.5"]._replace(template=template))
    said = {"role": "assistant", "content": None, "tool_calls": None, "reasoning": "Hm."}
    messages = [said] if "m.content" in template or "m.thinking" in template else [asks("<é>")]
    assert tokenizer.decode(tokenizer.prompt(messages).ids) == text
