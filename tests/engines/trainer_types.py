"""What RL frameworks say about our samples: each form goes through the framework's own type or check.

It runs in the environment of the trainers: `python trainer_types.py NAME < form.json`. TRL is imported as a whole, and
trains. Of the others only the module with the type is imported: they need GPUs to be installed completely. What that
module imports besides, and is not installed, is an empty module.
"""

# mypy: ignore-errors

import importlib
import importlib.metadata
import importlib.util
import json
import sys
import types
from pathlib import Path

import torch


class _Anything(type):
    """A class that has every attribute, so that annotations and decorators of other parts can be evaluated."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return cls

    def __call__(cls, *given, **_named):
        return given[0] if given and callable(given[0]) else cls

    def __getitem__(cls, _key):
        return cls

    def __iter__(cls):
        return iter(())

    def __or__(cls, _other):
        return cls

    __ror__ = __or__


Missing = _Anything("Missing", (), {})


class Absent:
    """Finds empty modules for what is not installed, and packages without running their `__init__`."""

    def __init__(self, package):
        spec = importlib.util.find_spec(package)
        self.package, self.folder = package, Path(spec.submodule_search_locations[0])
        self.whole = set()

    def find_spec(self, name, _path=None, _target=None):
        """A package of the framework is a folder; its own modules are real; the rest is empty."""
        top = name.partition(".")[0]
        if top != self.package:
            if top in INSTALLED or top in sys.stdlib_module_names or not self.is_asking(top):
                return None
            return importlib.util.spec_from_loader(name, self, is_package=True)
        folder = self.folder.joinpath(*name.split(".")[1:])
        if name in self.whole:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=folder.is_dir())

    def is_asking(self, top):
        """Whether the framework imports this, and not a library that looks for something optional."""
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if not name.startswith("importlib") and name != __name__:
                return name.partition(".")[0] in (self.package, top)
            frame = frame.f_back
        return False

    def create_module(self, spec):
        """A module that has everything, as one class."""

        def found(name):
            if name.startswith("__"):
                raise AttributeError(name)
            return Missing

        module = types.ModuleType(spec.name)
        module.__getattr__ = found
        return module

    def exec_module(self, module):
        """Let submodules be found where they are."""
        if module.__name__.partition(".")[0] == self.package:
            module.__path__ = [str(self.folder.joinpath(*module.__name__.split(".")[1:]))]


INSTALLED = {
    name for one in importlib.metadata.distributions() for name in (one.read_text("top_level.txt") or "").split()
} | {path.stem.partition(".")[0] for path in Path(torch.__file__).parent.parent.iterdir()}
INSTALLED -= {"verl", "skyrl", "areal", "openrlhf", "agentlightning"}


def only(package, *modules):
    """Import these modules of a package, and nothing else of it."""
    finder = Absent(package)
    finder.whole = set(modules)
    sys.meta_path.insert(0, finder)
    return [importlib.import_module(name) for name in modules]


def verl(form):
    """`AgentLoopOutput` validates each sample and turns it into tensors."""
    (module,) = only("verl", "verl.experimental.agent_loop.agent_loop")
    for one in form:
        made = module.AgentLoopOutput.model_validate(one)
        assert made.model_dump(exclude_unset=True)["response_ids"] == one["response_ids"]
        tensors = made.as_dict()
        assert tensors["responses"].shape == tensors["response_mask"].shape == tensors["rollout_log_probs"].shape
        assert float(tensors["rm_scores"].sum()) == one["reward_score"]
    return f"AgentLoopOutput, {len(form)} samples"


def skyrl(form):
    """`GeneratorOutput` has these fields, and the trainer's own check accepts the batch."""
    base, checks = only("skyrl", "skyrl.train.generators.base", "skyrl.train.utils.trainer_utils")
    assert set(form) <= set(base.GeneratorOutput.__annotations__)
    checks.validate_generator_output(len(form["response_ids"]), form)
    return f"GeneratorOutput, {len(form['response_ids'])} samples"


def areal(form):
    """The executor's check of what a workflow returns accepts each sample as tensors."""
    (module,) = only("areal", "areal.infra.workflow_executor")
    kinds = {"attention_mask": torch.bool, "logprobs": torch.float32, "rewards": torch.float32}
    for one in form:
        tensors = {name: torch.tensor([value], dtype=kinds.get(name, torch.int32)) for name, value in one.items()}
        assert module.check_trajectory_format(tensors, batch_size=1, expected_keys=set(one)) is True
        assert tensors["versions"].shape == tensors["input_ids"].shape
    return f"check_trajectory_format, {len(form)} samples"


def openrlhf(form):
    """The samples generator makes an `Experience` of each sample, with our mask and logprobs."""
    _experience, module = only(
        "openrlhf", "openrlhf.trainer.ppo_utils.experience", "openrlhf.trainer.ppo_utils.samples_generator"
    )
    generator = next(
        one for one in vars(module).values() if hasattr(one, "_process_response_into_experience")
        and one is not Missing and isinstance(one, type)
    )  # fmt: skip
    for one in form:
        made = generator._process_response_into_experience(None, one, max_len=8192)
        said = [id for start, end in one["action_ranges"] for id in one["observation_tokens"][start:end]]
        assert made.sequences[0, 1:][made.action_mask[0].bool()].tolist() == said
        assert made.rollout_log_probs.shape == made.action_mask.shape
    return f"Experience, {len(form)} samples"


def agent_lightning(form):
    """`Triplet` validates each turn."""
    (module,) = only("agentlightning", "agentlightning.types.core")
    triplets = [module.Triplet.model_validate(turn) for one in form for turn in one]
    assert all(one.prompt["token_ids"] and one.response["token_ids"] for one in triplets)
    return f"Triplet, {len(triplets)} turns"


def trl(form):
    """The GRPO trainer takes a step on the CPU with our batch as its rollout."""
    from datasets import Dataset
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
    from trl import GRPOConfig, GRPOTrainer

    count = len(form["prompt_ids"])
    highest = max(id for ids in (*form["prompt_ids"], *form["completion_ids"]) for id in ids)
    config = Qwen3Config(
        vocab_size=highest + 8, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=16, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    words = Tokenizer(models.WordLevel({"a": 0, "b": 1, "c": 2}, unk_token="a"))
    wrapped = PreTrainedTokenizerFast(tokenizer_object=words, eos_token="c", pad_token="a")
    seen = []

    def reward(completions, reward, **_columns):
        seen.append((len(completions), reward))
        return reward

    trainer = GRPOTrainer(
        Qwen3ForCausalLM(config), reward, processing_class=wrapped,
        args=GRPOConfig(
            output_dir="trl-out", per_device_train_batch_size=count, num_generations=count, max_steps=1,
            use_cpu=True, report_to=[], save_strategy="no", learning_rate=1e-2, logging_steps=1,
            bf16=False,
        ),
        train_dataset=Dataset.from_dict({"prompt": ["b"] * count}),
        rollout_func=lambda prompts, _trainer: form,
    )  # fmt: skip
    before = trainer.model.lm_head.weight.detach().clone()
    trainer.train()
    assert seen == [(count, form["reward"])]
    assert not torch.equal(before, trainer.model.lm_head.weight)
    return f"GRPOTrainer took a step with {count} samples"


CHECKS = {
    "verl": verl, "skyrl": skyrl, "areal": areal, "openrlhf": openrlhf, "agent-lightning": agent_lightning, "trl": trl,
}  # fmt: skip

if __name__ == "__main__":
    name = sys.argv[1]
    said = CHECKS[name](json.load(sys.stdin))
    version = importlib.metadata.version(name.replace("-", "") if name != "agent-lightning" else "agentlightning")
    print(json.dumps({"version": version, "said": said}))
