"""Small batches that become large when the broker has to decompress or recompress them."""

from __future__ import annotations

import random

import pytest

from plog.errors import ErrorCode
from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from tests.attack.conftest import Attack
from tests.attack.frames import (
    create_topic,
    now_ms,
    produce,
    produce_frame,
    response_size,
    zeros_batch,
)
from tests.attack.target import Target

_QUICK = (Compression.SNAPPY, Compression.ZSTD)
_CODECS = [
    pytest.param(codec, id=codec.name.lower(), marks=[] if codec in _QUICK else [pytest.mark.long])
    for codec in (Compression.GZIP, Compression.SNAPPY, Compression.LZ4, Compression.ZSTD)
]
_SLOWEST = {
    "gzip": {"compression.type": "gzip", "compression.gzip.level": "9"},
    "lz4": {"compression.type": "lz4", "compression.lz4.level": "17"},
    "zstd": {"compression.type": "zstd", "compression.zstd.level": "22"},
}
_REFUSED = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_RECORD, ErrorCode.CORRUPT_MESSAGE)
_every_codec = pytest.mark.parametrize("codec", _CODECS)


def _slow_value(nbytes: int) -> bytes:
    """Return a value that zstd shrinks to nothing, but that is expensive for gzip and lz4."""
    chance = random.Random(1)
    letters = bytes(chance.choice(b"ab") for _ in range(60_000))
    return (letters * (nbytes // len(letters) + 1))[:nbytes]


@pytest.mark.parametrize("codec", _SLOWEST)
def test_recompression_at_the_slowest_level(target: Target, attack: Attack, codec: str) -> None:
    """A batch of a few KB expands to 600 KB."""
    topic = f"slowest-{codec}"
    create_topic(target, topic, config=_SLOWEST[codec])
    record = Record(timestamp=now_ms(), key=b"k", value=_slow_value(600_000))
    # From zstd to zstd, the broker would not recompress. LZ4 takes seconds at a high level.
    source, level = (Compression.LZ4, 1) if codec == "zstd" else (Compression.ZSTD, 12)
    batch = build_batch([record], compression=source, level=level)
    with target.connect() as peer, attack():
        assert produce(peer, topic, batch)[0] in (0, *_REFUSED)


@_every_codec
def test_bomb_for_a_compacted_topic(target: Target, attack: Attack, codec: Compression) -> None:
    """150 MB of zeros, which a compacted topic has to search for keys."""
    create_topic(target, "compacted", config={"cleanup.policy": "compact"})
    mebibyte = Record(timestamp=now_ms(), key=b"k", value=bytes(1 << 20))
    batch = build_batch([mebibyte] * 150, compression=codec)
    with target.connect() as peer, attack():
        if len(batch) < 1 << 20:
            assert produce(peer, "compacted", batch)[0] in _REFUSED
        else:
            response_size(peer, produce_frame("compacted", batch))


@_every_codec
def test_bomb_of_tiny_records(target: Target, attack: Attack, codec: Compression) -> None:
    """One request has several batches of two hundred thousand records."""
    create_topic(target, "tiny", config={"cleanup.policy": "compact"})
    stamp = now_ms()
    batch = build_batch([Record(timestamp=stamp, key=b"k")] * 200_000, compression=codec)
    with target.connect() as peer, attack():
        produce(peer, "tiny", *[batch] * 3)


def test_many_bombs_in_one_request(target: Target, attack: Attack) -> None:
    """Each of 50 batches expands to 16 MB, the limit at the default batch size."""
    create_topic(target, "compacted", config={"cleanup.policy": "compact"})
    with target.connect() as peer, attack():
        produce(peer, "compacted", *[zeros_batch((16 << 20) - 100)] * 50)


def test_bombs_from_many_connections(target: Target, attack: Attack) -> None:
    create_topic(target, "compacted", config={"cleanup.policy": "compact"})
    frame = produce_frame("compacted", zeros_batch((16 << 20) - 100))
    peers = [target.connect() for _ in range(40)]
    with attack():
        for peer in peers:
            peer.send(frame)
        for peer in peers:
            peer.response()
            peer.close()


@pytest.mark.parametrize("gigabytes", [1, 3])
def test_bomb_for_a_topic_with_the_largest_message_size(
    target: Target, attack: Attack, gigabytes: int
) -> None:
    """max.message.bytes=2147483647 does not raise the limit of a batch's uncompressed size."""
    config = {"max.message.bytes": str((1 << 31) - 1), "cleanup.policy": "compact"}
    create_topic(target, "largest", config=config)
    with target.connect() as peer, attack():
        assert produce(peer, "largest", zeros_batch((gigabytes << 30) - 1000))[0] in _REFUSED


@pytest.mark.parametrize(
    "config",
    [
        pytest.param({"message.timestamp.type": "LogAppendTime"}, id="log-append-time"),
        pytest.param({"message.timestamp.before.max.ms": "86400000"}, id="before-max"),
        pytest.param({"compression.type": "uncompressed"}, id="uncompressed"),
    ],
)
def test_bomb_for_a_topic_that_checks_records(
    target: Target, attack: Attack, config: dict[str, str]
) -> None:
    topic = f"checks-{len(next(iter(config)))}"
    create_topic(target, topic, config=config)
    stamp = now_ms()
    batch = build_batch([Record(timestamp=stamp, key=b"k")] * 200_000, compression=Compression.ZSTD)
    with target.connect() as peer, attack():
        produce(peer, topic, *[batch] * 3)
