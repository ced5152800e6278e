"""Writing: samples of many sessions as one file, in pieces: Parquet, safetensors or NumPy's own format.

The bytes depend only on the samples. Parquet has a row per sample. The other two concatenate each array of all samples,
and add `offsets` (where each sample begins) and the metadata as JSON.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from onrecord.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import ModuleType

    from onrecord.rollout.samples import Sample

ROWS_PER_GROUP = 8_192
"""How many samples of a Parquet file are in memory at a time, at most."""
TOKENS_PER_GROUP = 1_048_576
"""How many tokens of a Parquet file are in memory at a time, and those of one more sample."""


def pieces(samples: Iterable[Sample], suffix: str) -> Iterator[bytes]:
    """The file of this kind (.parquet, .safetensors, .npz) with these samples, piece by piece."""
    return writer(suffix)(samples)


def writer(suffix: str) -> Callable[[Iterable[Sample]], Iterator[bytes]]:
    """The writer for this suffix. Callers get it before they read anything, so a wrong name fails early."""
    found = _WRITERS.get(suffix)
    if found is None:
        raise InvalidInput(
            f"samples can be written as {', '.join(_WRITERS)}, not as {suffix or 'a file without a suffix'}",
            hint="give the file one of these suffixes",
        )
    needed, write = found
    for name in needed:
        need_extra(name)
    return write


def need_extra(name: str) -> ModuleType:
    """A module of the extra `rollout`, or one clear error if it is not installed."""
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError:
        raise InvalidInput(
            f"rollouts need {name.partition('.')[0]}, which is not installed", hint='pip install "onrecord[rollout]"'
        ) from None


class _Drain:
    """A writable file; the caller takes its bytes piece by piece."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._length = 0

    def write(self, part: Any) -> int:
        """Buffer bytes."""
        piece = bytes(part)
        self._parts.append(piece)
        self._length += len(piece)
        return len(piece)

    def read(self, _count: int = -1) -> bytes:
        """Return nothing: NumPy accepts only objects with this method as files."""
        return b""

    def tell(self) -> int:
        """The number of bytes written so far."""
        return self._length

    def flush(self) -> None:
        """Do nothing; there is nothing to flush."""

    def close(self) -> None:
        """Do nothing; buffered bytes can still be taken."""

    def readable(self) -> bool:
        """It is for writing."""
        return False

    def writable(self) -> bool:
        """It is for writing."""
        return True

    def seekable(self) -> bool:
        """Bytes that were taken cannot be overwritten."""
        return False

    def take(self) -> bytes:
        """The bytes written since the last call."""
        taken, self._parts = b"".join(self._parts), []
        return taken


def _parquet(samples: Iterable[Sample]) -> Iterator[bytes]:
    import pyarrow as pa  # type: ignore[import-untyped]  # it ships no types
    import pyarrow.parquet as pq  # type: ignore[import-untyped]  # as above

    schema = pa.schema({
        "session": pa.string(), "index": pa.int32(), "status": pa.string(), "finish": pa.string(),
        "cause": pa.string(), "tokens": pa.list_(pa.int32()), "loss_mask": pa.list_(pa.uint8()),
        "logprobs": pa.list_(pa.float32()), "provenance": pa.list_(pa.uint8()), "turn_ends": pa.list_(pa.int32()),
        "weight_versions": pa.list_(
            pa.struct([("version", pa.string()), ("start", pa.int32()), ("end", pa.int32())])
        ),
        "side_payloads": pa.string(), "discarded_tokens": pa.int64(), "shared_length": pa.int32(),
        "prompt_length": pa.int32(),
        "reward": pa.float64(), "rewards": pa.string(), "turn_rewards": pa.list_(pa.float64()), "group": pa.string(),
        "metadata": pa.string(),
    })  # fmt: skip
    drain = _Drain()
    with pq.ParquetWriter(drain, schema, compression="zstd") as out:
        for group in _grouped(samples):
            out.write_table(pa.table(_columns(group, schema), schema))
            yield drain.take()
    yield drain.take()


def _columns(group: list[Sample], schema: Any) -> dict[str, Any]:
    """The columns of a row group. Numbers go into Arrow as arrays: value by value they would take ten times as long."""
    import numpy as np
    import pyarrow as pa

    def listed(name: str, rows: list[Any], values: Any) -> Any:
        ends = np.cumsum([0, *map(len, rows)], dtype=np.int32)
        return pa.ListArray.from_arrays(ends, values, type=schema.field(name).type)

    def numbers(name: str) -> Any:
        rows = [getattr(sample, name) for sample in group]
        inner = schema.field(name).type.value_type
        return listed(name, rows, pa.array(np.concatenate(rows), inner))

    def flat(name: str) -> Any:
        rows = [getattr(sample, name) for sample in group]
        inner = schema.field(name).type.value_type
        return listed(name, rows, pa.array([value for row in rows for value in row], inner))

    weights = [sample.weight_versions for sample in group]
    span = schema.field("weight_versions").type.value_type
    spans = [pa.array([one[at] for row in weights for one in row], span[at].type) for at in range(3)]
    found = {
        "weight_versions": listed("weight_versions", weights, pa.StructArray.from_arrays(spans, fields=list(span))),
        **{name: numbers(name) for name in ("tokens", "loss_mask", "logprobs", "provenance")},
        **{name: flat(name) for name in ("turn_ends", "turn_rewards")},
        **{name: [_json(getattr(one, name)) for one in group] for name in ("side_payloads", "rewards", "metadata")},
    }
    return {
        name: found[name] if name in found else pa.array([getattr(one, name) for one in group], schema.field(name).type)
        for name in schema.names
    }


def _safetensors(samples: Iterable[Sample]) -> Iterator[bytes]:
    from safetensors.numpy import save

    arrays, about = _end_to_end(samples)
    # One entry of metadata: the library would write several in no fixed order.
    yield save(arrays, metadata={"samples": about})


def _npz(samples: Iterable[Sample]) -> Iterator[bytes]:
    import numpy as np

    arrays, about = _end_to_end(samples)
    drain = _Drain()
    np.savez(drain, allow_pickle=False, samples=np.frombuffer(about.encode(), np.uint8), **arrays)
    yield drain.take()


def _end_to_end(samples: Iterable[Sample]) -> tuple[dict[str, Any], str]:
    import numpy as np

    whole = list(samples)
    lengths = [len(sample.tokens) for sample in whole]
    arrays: dict[str, Any] = {"offsets": np.cumsum([0, *lengths], dtype=np.int64)}
    for name, kind in (("tokens", "i4"), ("loss_mask", "u1"), ("logprobs", "f4"), ("provenance", "u1")):
        arrays[name] = np.concatenate([np.zeros(0, kind), *(getattr(sample, name) for sample in whole)]).astype(kind)
    return arrays, _json([sample.about() for sample in whole])


def _grouped(samples: Iterable[Sample]) -> Iterator[list[Sample]]:
    group: list[Sample] = []
    tokens = 0
    for sample in samples:
        group.append(sample)
        tokens += len(sample.tokens)
        if len(group) == ROWS_PER_GROUP or tokens >= TOKENS_PER_GROUP:
            yield group
            group, tokens = [], 0
    if group:
        yield group


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


_WRITERS: dict[str, tuple[tuple[str, ...], Callable[[Iterable[Sample]], Iterator[bytes]]]] = {
    ".parquet": (("numpy", "pyarrow.parquet"), _parquet),
    ".safetensors": (("numpy", "safetensors.numpy"), _safetensors),
    ".npz": (("numpy",), _npz),
}
