"""Messages to ids: whole prompts, new messages only, and the seam between sampled and rendered ids."""

import json

import pytest

from examples.rollout.tokenizer import TEMPLATE, make
from onrecord.errors import InvalidInput, TokenizationFailed
from onrecord.rollout.server.loading import load_tokenizer
from onrecord.rollout.tokens import TemplateTokenizer, read_config

USER = {"role": "user", "content": "What is 17 plus 25?"}
ASSISTANT = {"role": "assistant", "content": "Let me add these."}
TOOL = {"role": "tool", "content": "42"}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="module")
def tokenizer(place):
    return load_tokenizer(str(place))


def ids_of(tokenizer, text):
    return list(tokenizer._encoder.encode(text, add_special_tokens=False).ids)


def rendered(tokenizer, messages, tools=None):
    return list(tokenizer.prompt(messages, tools).ids)


def gone_on(tokenizer, stored, before, appended):
    """Stored ids, the repaired seam, and the new ids."""
    suffix = tokenizer.suffix(before, appended).ids
    joint = tokenizer.repair(stored[-64:], suffix)
    assert (joint.drop, joint.ids) == (0, ())
    return [*stored, *suffix[joint.skip :]]


def test_a_prompt_is_rendered_by_the_template(tokenizer):
    """The ids of a prompt are those of the text that the chat template writes, up to the assistant's turn."""
    text = "<|im_start|>user\nWhat is 17 plus 25?<|im_end|>\n<|im_start|>assistant\n"
    assert rendered(tokenizer, [USER]) == ids_of(tokenizer, text)
    assert tokenizer.decode(rendered(tokenizer, [USER])) == text


def test_ids_and_text_go_both_ways(tokenizer):
    """Decoding the ids of any text gives the text back."""
    for text in ("Grüße, 世界 🙂", "a\r\n\tb", "<|im_end|>", ""):
        assert tokenizer.decode(ids_of(tokenizer, text)) == text


@pytest.mark.parametrize("sampled_end", [0, 1, 2])
def test_what_was_sampled_goes_on_as_the_template_would(tokenizer, sampled_end):
    """Stored ids, the repaired seam and the suffix equal the ids of the whole conversation, however the turn ended."""
    closing = ids_of(tokenizer, "<|im_end|>\n")
    stored = rendered(tokenizer, [USER]) + ids_of(tokenizer, "Let me add these.") + closing[:sampled_end]
    after = gone_on(tokenizer, stored, [USER, ASSISTANT], [TOOL])
    assert after == rendered(tokenizer, [USER, ASSISTANT, TOOL])


def test_the_seam_keeps_what_was_sampled(tokenizer):
    """Ids that were sampled in an unusual spelling stay; only new messages are tokenized."""
    odd = [id_ for letter in "Let me add these." for id_ in ids_of(tokenizer, letter)]
    stored = rendered(tokenizer, [USER]) + odd
    after = gone_on(tokenizer, stored, [USER, ASSISTANT], [TOOL])
    assert after[: len(stored)] == stored
    assert after != rendered(tokenizer, [USER, ASSISTANT, TOOL])
    assert tokenizer.decode(after) == tokenizer.decode(rendered(tokenizer, [USER, ASSISTANT, TOOL]))


def test_tools_and_calls_are_rendered(tokenizer):
    """Tools are in the prompt, and a call's arguments are rendered as an object, however they were spelled."""
    tools = [{"type": "function", "function": {"name": "add"}}]
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": '{"a":  17}'}}
    text = tokenizer.decode(rendered(tokenizer, [USER, {"role": "assistant", "tool_calls": [call]}, TOOL], tools=tools))
    assert text.startswith("<|im_start|>system\nTools: [")
    assert '<tool_call>{"name": "add", "arguments": {"a": 17}}</tool_call>' in text
    broken = {"role": "assistant", "tool_calls": [{"function": {"name": "add", "arguments": "{"}}, "x"][:1]}
    assert '"arguments": "{"' in tokenizer.decode(rendered(tokenizer, [USER, broken]))


def test_what_a_client_says_for_the_assistant_is_marked(tokenizer):
    """Exactly the ids of an assistant message that the client wrote are marked as injected."""
    shot = [USER, {"role": "assistant", "content": "It is 42 – é🙂."}, USER]
    found = tokenizer.prompt(shot)
    ((start, end),) = found.injected
    assert tokenizer.decode(found.ids[start:end]) == "It is 42 – é🙂.<|im_end|>\n"
    assert tokenizer.prompt([USER]).injected == []


def test_parts_of_text_are_text(tokenizer):
    """Content in parts is joined; a part that is not text has no ids to record and is refused."""
    parts = {"role": "user", "content": [{"type": "text", "text": "What is 17 "}, {"type": "text", "text": "plus 25?"}]}
    assert rendered(tokenizer, [parts]) == rendered(tokenizer, [USER])
    for content in ([{"type": "image_url", "image_url": {}}], 7):
        with pytest.raises(InvalidInput):
            rendered(tokenizer, [{"role": "user", "content": content}])


def with_template(place, template):
    return TemplateTokenizer((place / "tokenizer.json").read_text(), template)


def test_a_template_that_rewrites_history_does_no_harm(place):
    """If a template renders earlier turns differently once more messages follow, new messages still follow the ids."""
    forgetful = "{% for m in messages %}[{{ m.role }}{% if loop.last %}!{% endif %}]{{ m.content }}{% endfor %}"
    tokenizer = with_template(place, forgetful)
    assert tokenizer.decode(tokenizer.suffix([USER, ASSISTANT], [TOOL]).ids) == "[tool!]42"


def test_a_template_may_refuse(place):
    """A template that refuses a conversation makes it invalid input, in the template's words."""
    tokenizer = with_template(place, "{{ raise_exception('roles must alternate') }}")
    with pytest.raises(InvalidInput, match="roles must alternate"):
        rendered(tokenizer, [USER])


@pytest.mark.parametrize(
    "template",
    ["{{ messages.__class__.__mro__ }}", "{{ messages.append(1) }}", "{{ nothing.at.all }}", "{{ 1 / 0 }}"],
)
def test_a_template_is_only_a_template(place, template):
    """A template cannot reach the program around it or change its input; if it fails, the error is typed."""
    with pytest.raises(TokenizationFailed):
        rendered(with_template(place, template), [USER])


def test_a_template_that_hides_answers_cannot_be_closed(place):
    """A template that does not render the assistant's messages has no end of a turn and is refused."""
    with pytest.raises(TokenizationFailed, match="does not render the assistant's messages"):
        with_template(place, "{{ messages[0].content }}").suffix([USER, ASSISTANT], [TOOL])


def test_the_sandbox_writes_json_and_no_html(place):
    """`tojson` writes characters as they are: a prompt is not a web page."""
    tokenizer = with_template(place, "{{ messages[0].content | tojson }}")
    assert tokenizer.decode(rendered(tokenizer, [{"role": "user", "content": "<é&>"}])) == '"<é&>"'


def test_where_a_template_may_be(place, tmp_path):
    """The template is in the configuration, alone or in a list of named ones, or in a file beside it."""
    listed = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": TEMPLATE}]
    assert read_config(json.dumps({"chat_template": listed})) == ({"tool_use": "x", "default": TEMPLATE}, {})
    (tmp_path / "tokenizer.json").write_bytes((place / "tokenizer.json").read_bytes())
    (tmp_path / "chat_template.jinja").write_text(TEMPLATE)
    assert rendered(load_tokenizer(str(tmp_path)), [USER]) == rendered(load_tokenizer(str(place)), [USER])
    assert rendered(load_tokenizer(str(tmp_path / "tokenizer.json")), [USER]) == rendered(
        load_tokenizer(str(place)), [USER]
    )


def test_a_template_may_be_for_tools(place):
    """Of several templates, `tool_use` renders conversations with tools, new messages too; alone, it renders all."""
    plain, tools = (f"{name}{{% for m in messages %}}[{{{{ m.content }}}}]{{% endfor %}}" for name in ("P", "T"))
    both = TemplateTokenizer((place / "tokenizer.json").read_text(), {"default": plain, "tool_use": tools, "rag": "{%"})
    tool = [{"type": "function", "function": {"name": "add"}}]
    for given, name in ((None, "P"), ([], "P"), (tool, "T")):
        assert both.decode(both.prompt([TOOL], given).ids) == f"{name}[42]"
    hidden = {"default": "{{ messages[0].content }}", "tool_use": tools}
    only = TemplateTokenizer((place / "tokenizer.json").read_text(), hidden)
    assert only.decode(only.suffix([USER, ASSISTANT], [TOOL], tool).ids) == "][42]"
    config = json.dumps({"chat_template": [{"name": "tool_use", "template": tools}]})
    alone = TemplateTokenizer((place / "tokenizer.json").read_text(), *read_config(config))
    assert alone.decode(alone.prompt([TOOL]).ids) == alone.decode(alone.prompt([TOOL], tool).ids) == "T[42]"


def test_named_tokens_reach_the_template(place):
    """A template can use every token that the configuration names, whatever its name."""
    config = {
        "chat_template": "{{ cls_token }}{{ image_token }}{{ boi_token }}{{ add_bos_token }}", "add_bos_token": True,
        "cls_token": "<c>", "image_token": {"content": "<i>"}, "extra_special_tokens": {"boi_token": "<b>"},
        "model_max_length": 7, "tokenizer_class": "x",
    }  # fmt: skip
    tokenizer = TemplateTokenizer((place / "tokenizer.json").read_text(), *read_config(json.dumps(config)))
    assert tokenizer.decode(rendered(tokenizer, [USER])) == "<c><i><b>"


@pytest.mark.parametrize(
    "config",
    [
        "{",
        "[]",
        '{"chat_template": [{"name": "rag", "template": "x"}]}',
        "{}",
        '{"chat_template": 7}',
        '{"chat_template": []}',
    ],
)
def test_a_configuration_without_a_template_is_refused(config):
    """Without a chat template nothing can be rendered, and the error says where to set one."""
    with pytest.raises(InvalidInput):
        read_config(config)


def test_files_that_are_no_tokenizer_are_refused(tmp_path, place):
    """A missing or wrong file is one clear error."""
    with pytest.raises(InvalidInput, match="cannot read"):
        load_tokenizer(str(tmp_path / "nowhere"))
    with pytest.raises(InvalidInput, match="cannot read the tokenizer"):
        TemplateTokenizer("{}", TEMPLATE)
    with pytest.raises(InvalidInput, match="cannot read the chat template"):
        with_template(place, "{% for %}")
