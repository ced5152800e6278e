"""Loading a tokenizer from a model's directory."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from onrecord.errors import InvalidInput
from onrecord.rollout.tokens import TemplateTokenizer, read_config, read_stops


def load_tokenizer(directory: str, *, replace_stop: bool = False) -> TemplateTokenizer:
    """The tokenizer of a directory, or of a `tokenizer.json` with its configuration beside it."""
    path = Path(directory).expanduser()
    file = path if path.suffix == ".json" else path / "tokenizer.json"
    try:
        described = file.read_text(encoding="utf-8")
        config, template = (_beside(file, name) for name in ("tokenizer_config.json", "chat_template.jinja"))
    except (OSError, UnicodeDecodeError) as problem:
        raise InvalidInput(
            f"cannot read the tokenizer: {problem}",
            hint="name a directory with tokenizer.json and tokenizer_config.json",
        ) from None
    stops = read_stops(_beside(file, "generation_config.json") or "{}")
    return TemplateTokenizer(
        described, *read_config(config or "{}", template), stops=stops, replace_stop=replace_stop, now=_now
    )


def _now() -> datetime:
    return datetime.now().astimezone()


def _beside(file: Path, name: str) -> str | None:
    path = file.with_name(name)
    return path.read_text(encoding="utf-8") if path.is_file() else None
