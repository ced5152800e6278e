"""What our modules use of `json`, without importing `json`: it imports `re`, and both are a third of a bare process.

Values are read and written by the part of `json` that is in C, with the same results. A text that this part refuses is
given to `json`, which raises its own error. Write `from onrecord import lean_json as json` in a module that hooks load;
others import `json`. Why: docs/decisions/0057-hooks-load-no-regular-expressions.md.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from json import JSONDecoder
    from typing import Any, NoReturn

_SPACE = " \t\n\r"


class _Form:
    """The attributes that the scanner in C reads from `json.JSONDecoder`."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float, parse_int = float, int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.__getitem__


class _Standard(_Form):
    """The same without the numbers that only Python writes."""

    @staticmethod
    def parse_constant(name: str) -> NoReturn:
        raise ValueError(f"{name} is no JSON")


def standard_decoder() -> JSONDecoder:
    """The decoder of `json` that refuses NaN and infinities."""
    from json import JSONDecoder

    return JSONDecoder(parse_constant=_Standard.parse_constant)


def _no_json(value: Any) -> NoReturn:
    raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")


def _parts() -> tuple[Any, ...]:
    """The part of `json` in C: scanners, encoder, escaping. On a Python without it, what `json` has in its place."""
    part: Any
    try:
        import _json as part

        return (
            part.make_scanner(_Form()), part.make_scanner(_Standard()), part.make_encoder,
            part.encode_basestring, part.encode_basestring_ascii,
        )  # fmt: skip
    except (ImportError, AttributeError, TypeError):
        from json import JSONDecoder
        from json import encoder as part

        plain: Any = JSONDecoder()
        standard: Any = standard_decoder()
        return plain.scan_once, standard.scan_once, None, part.encode_basestring, part.encode_basestring_ascii


scan: Callable[[str, int], tuple[Any, int]]
_scan_standard: Callable[[str, int], tuple[Any, int]]
make_encoder: Callable[..., Callable[[Any, int], Iterable[str]]] | None
encode_basestring: Callable[[str], str]
encode_basestring_ascii: Callable[[str], str]
scan, _scan_standard, make_encoder, encode_basestring, encode_basestring_ascii = _parts()


def loads(text: str | bytes) -> Any:
    """What `json.loads` returns."""
    if type(text) is bytes and b"\0" not in text[:4] and text[:1] < b"\x80":
        text = text.decode("utf-8", "surrogatepass")
    if type(text) is str:
        value, known = _scanned(scan, text)
        if known:
            return value
    import json

    return json.loads(text)


def loads_standard(text: str) -> Any:
    """The same; NaN and infinities are refused."""
    value, known = _scanned(_scan_standard, text)
    return value if known else standard_decoder().decode(text)


def _scanned(scan: Callable[[str, int], tuple[Any, int]], text: str) -> tuple[Any, bool]:
    """The value of a text, and whether it has one and nothing else."""
    bare = text.strip(_SPACE)
    try:
        value, end = scan(bare, 0)
    except (StopIteration, ValueError, SystemError):
        # Where `json` is not imported, the part in C cannot make its error, and leaves a SystemError.
        return None, False
    return value, end == len(bare)


def dumps(
    value: Any,
    *,
    ensure_ascii: bool = True,
    separators: tuple[str, str] = (", ", ": "),
    check_circular: bool = True,
) -> str:
    """What `json.dumps` returns."""
    escape = encode_basestring_ascii if ensure_ascii else encode_basestring
    if isinstance(value, str):
        return escape(value)
    if make_encoder is None:
        import json

        return json.dumps(value, ensure_ascii=ensure_ascii, separators=separators, check_circular=check_circular)
    between, after_key = separators
    seen: dict[int, Any] | None = {} if check_circular else None
    return "".join(make_encoder(seen, _no_json, escape, None, after_key, between, False, False, True)(value, 0))  # noqa: FBT003 - it takes no names
