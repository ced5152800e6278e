"""How payloads are kept: short ones as they are, others compressed, large ones out of line and each content once.

What is compressed has a checksum, so that damage is an error to every reader; what is not is short, and is compared
with its commitment whenever it is opened (`log/codec.py`). `verify` compares everything with the hash chain.
"""

from __future__ import annotations

from onrecord.lean_typing import TYPE_CHECKING, Any, NamedTuple
from onrecord.log.events import tuple_new
from onrecord.stores.zstd import zstd

if TYPE_CHECKING:
    from collections.abc import Callable

    from zstandard import ZstdCompressor, ZstdDecompressor

PLAIN, COMPRESSED, OUT_OF_LINE = 0, 1, 2
COMPRESS_FROM = 512
"""Payloads of fewer bytes are kept as they are: compressing them gains nothing."""
FACTS_FROM = 2_048
"""The same for the durable tier: every command reads its facts, and most commands need no decompressor for anything
else."""
SNAPSHOT_FROM = 256 * 1024
"""The same for snapshots."""
PLAIN_SNAPSHOT = b"="
"""What a snapshot that is kept uncompressed begins with."""
SNAPSHOT_MARK = b"#"
"""What a snapshot that is encrypted with the session's own key begins with."""
INLINE_LIMIT = 32 * 1024
"""Payloads of more bytes are kept out of line, each content once."""
WINDOW_BITS, HASH_BITS, SHORTEST_MATCH = 15, 11, 7
"""zstd's fastest strategy, for payloads of a few kilobytes: a third less time than its level 1, a tenth larger."""
MANY = 500
"""The number of payloads from which unpacking is worth a second thread."""
LARGE_LEVEL = 3
"""The level for content that is kept out of line."""


def key_for(secret: bytes, purpose: str) -> bytes:
    """The key of a store for one purpose."""
    from hashlib import blake2b

    return blake2b(purpose.encode(), key=secret, digest_size=32, person=b"onrecord/key").digest()


class Packed(NamedTuple):
    """A payload as its row will store it."""

    encoding: int
    stored: bytes
    """The bytes in the row; for a payload out of line, its key."""
    body: bytes | None
    """What goes into `blobs`, if it is kept out of line."""


class Payloads:
    """Packs and unpacks. Compression happens here, before any lock is taken; contexts are borrowed, never shared."""

    def __init__(self, secret: Callable[[], bytes]) -> None:
        self._secret = secret
        self.ciphers: Callable[[], Any] | None = None
        """The ciphers of sessions that have a key of their own; the store sets it."""
        self._compressors: list[ZstdCompressor] = []
        self._decompressors: list[ZstdDecompressor] = []

    def pack(self, payload: bytes, compress_from: int = COMPRESS_FROM, *, conversation: bool = False) -> Packed:
        """The form in which a payload is kept; `conversation`: it is part of a mirrored one."""
        size = len(payload)
        if size < compress_from:
            return tuple_new(Packed, (PLAIN, payload, None))
        if size > INLINE_LIMIT:
            from hashlib import blake2b

            key = blake2b(payload, digest_size=32, key=self._secret()).digest()
            return Packed(OUT_OF_LINE, key, compress_large(payload))
        if conversation:
            packed = _thorough_compressor().compress(payload)
        else:
            try:
                compressor = self._compressors.pop()
            except IndexError:
                compressor = _new_compressor()
            packed = compressor.compress(payload)
            self._compressors.append(compressor)
        return tuple_new(Packed, (COMPRESSED, packed, None) if len(packed) < size else (PLAIN, payload, None))

    def decrypted(self, session: str, rows: list[Any]) -> list[Any]:
        """Rows of a session's events, those that are encrypted with its key as they were before."""
        return rows if self.ciphers is None else list(self.ciphers().rows(session, rows))

    def unpack(self, packed: list[bytes]) -> list[bytes]:
        """The content of each zstd frame; for a damaged one, the frame itself."""
        if not packed:
            return []
        if len(packed) < MANY:
            return self._unpack(packed)
        # zstd releases the GIL, so two threads take half the time.
        half = len(packed) // 2
        rest: list[bytes] = []
        from threading import Thread

        helper = Thread(target=lambda: rest.extend(self._unpack(packed[half:])))
        helper.start()
        found = self._unpack(packed[:half])
        helper.join()
        return found + rest

    def unpack_snapshot(self, packed: bytes) -> bytes | None:
        """The body of a snapshot; None if it is damaged."""
        if packed.startswith(PLAIN_SNAPSHOT):
            return packed[len(PLAIN_SNAPSHOT) :]
        (body,) = self.unpack([packed])
        return None if body is packed else body

    def _unpack(self, packed: list[bytes]) -> list[bytes]:
        decompressor = self.borrow()
        decompress = decompressor.decompress
        try:
            return [decompress(frame) for frame in packed]
        except Exception:  # noqa: BLE001  # zstd's error class is not worth its import on this path
            return [_unpack_or_keep(decompressor, frame) for frame in packed]
        finally:
            self.give_back(decompressor)

    def give_back(self, decompressor: ZstdDecompressor) -> None:
        """Return a decompressor that was borrowed; one that is not returned is no loss."""
        self._decompressors.append(decompressor)

    def borrow(self) -> ZstdDecompressor:
        """A decompressor that only the caller uses until it is returned."""
        try:
            return self._decompressors.pop()
        except IndexError:
            return _new_decompressor()


def _unpack_or_keep(decompressor: ZstdDecompressor, frame: bytes) -> bytes:
    try:
        return decompressor.decompress(frame)
    except Exception:  # noqa: BLE001  # as in `unpack`
        return frame


def compress_large(content: bytes) -> bytes:
    """One zstd frame of content that is large or seldom written."""
    compressed: bytes = zstd().ZstdCompressor(level=LARGE_LEVEL, write_checksum=True).compress(content)
    return compressed


def pack_snapshot(body: bytes) -> bytes:
    """The form in which a snapshot is kept."""
    return PLAIN_SNAPSHOT + body if len(body) < SNAPSHOT_FROM else compress_large(body)


def _new_compressor() -> ZstdCompressor:
    library = zstd()
    parameters = library.ZstdCompressionParameters(
        strategy=library.STRATEGY_FAST,
        window_log=WINDOW_BITS,
        hash_log=HASH_BITS,
        min_match=SHORTEST_MATCH,
        write_content_size=True,
        write_checksum=True,
    )
    made: ZstdCompressor = library.ZstdCompressor(compression_params=parameters)
    return made


def _thorough_compressor() -> ZstdCompressor:
    """For a few kilobytes: a tenth smaller than the fastest strategy, in seven times its time (0.2 ms)."""
    library = zstd()
    parameters = library.ZstdCompressionParameters(
        strategy=library.STRATEGY_BTOPT, window_log=WINDOW_BITS, hash_log=14, chain_log=14, search_log=5, min_match=3,
        target_length=48, write_content_size=True, write_checksum=True,
    )  # fmt: skip
    made: ZstdCompressor = library.ZstdCompressor(compression_params=parameters)
    return made


def _new_decompressor() -> ZstdDecompressor:
    made: ZstdDecompressor = zstd().ZstdDecompressor()
    return made
