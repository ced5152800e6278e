"""Loading a tokenizer from a model's directory."""

from __future__ import annotations

from pathlib import Path

from onrecord.errors import InvalidInput
from onrecord.rollout.tokens import TemplateTokenizer, read_config


def load_tokenizer(place: str) -> TemplateTokenizer:
    """The tokenizer of a directory, or of a `tokenizer.json` that has its configuration beside it."""
    path = Path(place).expanduser()
    file = path if path.suffix == ".json" else path / "tokenizer.json"
    try:
        described = file.read_text(encoding="utf-8")
        config, template = (_beside(file, name) for name in ("tokenizer_config.json", "chat_template.jinja"))
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(
            f"the tokenizer cannot be read: {problem}",
            hint="name a directory with tokenizer.json and tokenizer_config.json",
        ) from None
    return TemplateTokenizer(described, *read_config(config or "{}", template))


def _beside(file: Path, name: str) -> str | None:
    path = file.with_name(name)
    return path.read_text(encoding="utf-8") if path.is_file() else None
