"""A tiny model for real engines: `make DIRECTORY` writes it, `score` computes logprobs with Transformers.

It runs in the environment of an engine, which has PyTorch and Transformers. The model is a Qwen3 with about 360,000
parameters, random at first, which then learns for a minute to call a tool that adds two numbers: so the parsers of the
engines have calls to find. `a` and `b` differ a little in their weights, as before and after a step of training.
"""

# mypy: ignore-errors

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from torch.nn.functional import cross_entropy
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

TEMPLATE = """\
{%- if tools %}{{ '<|im_start|>system\\nTools:' }}
{%- for tool in tools %}{{ ' ' + tool.function.name }}{% endfor %}{{ '<|im_end|>\\n' }}{% endif -%}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + (message.content or '') }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- (call.function.arguments | tojson if call.function.arguments is mapping else call.function.arguments) }}
{{- '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif -%}
"""
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
STEPS, BATCH, RATE = 160, 8, 4e-3
NOISE = 0.25
"""How far the weights of `b` are from those of `a`, relative to their size."""


def conversation(numbers):
    """Two sums: a call, its result, the answer, each twice."""
    text, spans = "<|im_start|>system\nTools: add<|im_end|>\n", []
    for _ in range(2):
        a, b = numbers.randint(1, 99), numbers.randint(1, 99)
        call = f'<tool_call>\n{{"name": "add", "arguments": {{"a": {a}, "b": {b}}}}}\n</tool_call><|im_end|>'
        for role, words in (("user", f"Add {a} and {b}."), ("", call), ("tool", str(a + b)), ("", f"It is {a + b}.")):
            text += f"<|im_start|>{role or 'assistant'}\n"
            start = len(text)
            text += words if words.endswith("<|im_end|>") else words + "<|im_end|>"
            if not role:
                spans.append((start, len(text)))
            text += "\n"
    return text, spans


def tokenizer():
    """A byte-level BPE, trained on conversations like those it will see."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=420, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    numbers = random.Random(1)
    made.train_from_iterator([conversation(numbers)[0] for _ in range(200)], trainer)
    made.add_special_tokens([AddedToken(token, special=True) for token in SPECIAL])
    return made


def batch(encoder, numbers):
    """Conversations as ids, and the targets: what the assistant says."""
    rows = []
    for _ in range(BATCH):
        text, spans = conversation(numbers)
        encoded = encoder.encode(text, add_special_tokens=False)
        said = [any(start <= at < end for start, end in spans) for at, _end in encoded.offsets]
        rows.append((encoded.ids, [id if one else -100 for id, one in zip(encoded.ids, said, strict=True)]))
    longest = max(len(ids) for ids, _targets in rows)
    ids = torch.tensor([ids + [0] * (longest - len(ids)) for ids, _targets in rows])
    targets = torch.tensor([targets + [-100] * (longest - len(targets)) for _ids, targets in rows])
    return ids, targets


def make(place):
    """Write the two models, and say how many parameters each has."""
    torch.manual_seed(7)
    encoder = tokenizer()
    end = encoder.token_to_id("<|im_end|>")
    config = Qwen3Config(
        vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=32, max_position_embeddings=8192, tie_word_embeddings=True,
        eos_token_id=end, bos_token_id=None, pad_token_id=0, torch_dtype="float32",
    )  # fmt: skip
    model = Qwen3ForCausalLM(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    numbers = random.Random(2)
    for step in range(STEPS):
        ids, targets = batch(encoder, numbers)
        logits = model(input_ids=ids).logits[:, :-1]
        loss = cross_entropy(logits.reshape(-1, logits.shape[-1]), targets[:, 1:].reshape(-1), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for group in optimizer.param_groups:
            group["lr"] = RATE * (1 - step / STEPS)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=encoder, eos_token="<|im_end|>", pad_token="<|endoftext|>", chat_template=TEMPLATE
    )
    for name in ("a", "b"):
        if name == "b":
            with torch.no_grad():
                for part, weights in model.named_parameters():
                    if "embed" not in part:  # vLLM on a CPU does not load these again: it keeps a packed copy
                        weights.add_(torch.randn_like(weights) * weights.std() * NOISE)
        model.eval().save_pretrained(place / name)
        wrapped.save_pretrained(place / name)
        # Some versions write the template into a file of its own; every engine and the proxy read this one.
        file = place / name / "tokenizer_config.json"
        about = json.loads(file.read_text()) | {"chat_template": TEMPLATE}
        file.write_text(json.dumps(about, indent=1))
        (place / name / "chat_template.jinja").unlink(missing_ok=True)
    return {"parameters": sum(one.numel() for one in model.parameters()), "loss": round(float(loss.detach()), 3)}


def score(place):
    """For each line of samples, a line with the logprobs that both weights give to their tokens."""
    both = {name: Qwen3ForCausalLM.from_pretrained(place / name, dtype=torch.float32).eval() for name in ("a", "b")}
    for line in sys.stdin:
        found = {name: [_logprobs(model, tokens) for tokens in json.loads(line)] for name, model in both.items()}
        print(json.dumps(found), flush=True)


@torch.no_grad()
def _logprobs(model, tokens):
    logits = model(input_ids=torch.tensor([tokens])).logits[0, :-1].log_softmax(-1)
    return [0.0, *logits.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0].tolist()]


if __name__ == "__main__":
    torch.set_num_threads(1)  # more would wait for one another on a busy machine
    where = Path(sys.argv[2])
    if sys.argv[1] == "make":
        print(json.dumps(make(where)))
    else:
        score(where)
