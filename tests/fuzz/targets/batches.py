"""Batches from a producer: the log appends them unchanged or refuses them.

The first byte chooses the topic's settings. The second says whether size and checksum are corrected
first; without that, nearly all batches would be refused there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from plog.errors import KafkaError
from plog.records.batch import (
    ATTRIBUTES_POSITION,
    BATCH_LENGTH_POSITION,
    CRC_POSITION,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_POSITION,
    Compression,
    crc_is_valid,
    parse_header,
)
from plog.records.crc32c import crc32c
from plog.records.reader import read_payload
from plogd.log.log import Log
from plogd.topic_config import TopicConfig
from tests.fuzz.target import Target
from tests.helpers.log.log_data import client_batch
from tests.helpers.log.log_site import LogSite

_PLAIN = TopicConfig(max_message_bytes=100_000)
_CONFIGS = (
    _PLAIN,
    replace(_PLAIN, cleanup_policy=("compact",)),
    replace(_PLAIN, compression_type="zstd"),
    replace(_PLAIN, compression_type="uncompressed", message_timestamp_type="LogAppendTime"),
    replace(_PLAIN, message_timestamp_before_max_ms=3_600_000),
    replace(_PLAIN, max_message_bytes=200),
)
_BATCHES_PER_SITE = 500


class _Logs:
    """A log for each of the settings, recreated from time to time."""

    def __init__(self) -> None:
        self._site: LogSite | None = None
        self._logs: list[Log] = []
        self._inputs = 0

    def log(self, number: int) -> tuple[LogSite, Log]:
        self._inputs += 1
        if self._site is None or self._inputs > _BATCHES_PER_SITE:
            self._inputs = 0
            self._site = LogSite().start()
            self._logs = [
                self._site.create(f"t{index}-0", config) for index, config in enumerate(_CONFIGS)
            ]
        return self._site, self._logs[number % len(_CONFIGS)]


_LOGS = _Logs()


def fuzz(data: bytes) -> None:
    """Append a batch and read it back if it was accepted."""
    if len(data) < 2:
        return
    site, log = _LOGS.log(data[0])
    sent = correct(data[2:]) if data[1] & 1 else data[2:]
    end_offset = log.log_end_offset
    try:
        info = log.append_as_leader(
            memoryview(bytearray(sent)), leader_epoch=0, now_ms=site.ports.clock.now_ms()
        )
    except KafkaError:
        assert log.log_end_offset == end_offset
        assert log.read(end_offset, 1 << 20, end_offset=end_offset).region is None
        return
    if info.first_offset < end_offset:  # A duplicate of an earlier batch.
        assert log.log_end_offset == end_offset
        return
    assert (info.first_offset, log.log_end_offset) == (end_offset, info.last_offset + 1)
    _compare(sent, _read(log, end_offset))
    site.settle()


def correct(data: bytes) -> bytes:
    """Return the batch with a correct size, magic and checksum."""
    if len(data) < HEADER_SIZE:
        return data
    batch = bytearray(data)
    batch[:8] = bytes(8)
    batch[BATCH_LENGTH_POSITION:LOG_OVERHEAD] = (len(batch) - LOG_OVERHEAD).to_bytes(4, "big")
    batch[MAGIC_POSITION] = 2
    crc = crc32c(bytes(batch[ATTRIBUTES_POSITION:]))
    batch[CRC_POSITION:ATTRIBUTES_POSITION] = crc.to_bytes(4, "big")
    return bytes(batch)


def _read(log: Log, offset: int) -> bytes:
    region = log.read(offset, 1 << 20, end_offset=log.log_end_offset).region
    assert region is not None
    try:
        return region.read()
    finally:
        region.close()


def _compare(sent: bytes, kept: bytes) -> None:
    """Check that `kept` equals `sent`, except for the fields that the broker sets."""
    before, after = parse_header(sent), parse_header(kept)
    assert len(kept) == after.size_bytes and crc_is_valid(kept, 0, after)
    assert after.records_count == before.records_count
    assert after.last_offset_delta == before.last_offset_delta
    assert after[9:12] == before[9:12], "producer id, epoch or sequence changed"
    if after.compression is before.compression:
        assert kept[HEADER_SIZE:] == sent[HEADER_SIZE:]
    else:
        assert read_payload(kept, 0, after) == read_payload(sent, 0, before)


def _seeds() -> Iterator[bytes]:
    for config in range(len(_CONFIGS)):
        for codec in Compression:
            yield bytes([config, 1]) + bytes(client_batch(3, compression=codec))
        yield bytes([config, 0]) + bytes(client_batch())
    yield b"\0\1" + bytes(client_batch(producer_id=4, producer_epoch=0, base_sequence=0))
    yield b"\1\1" + bytes(client_batch(key=None))
    yield b"\0\1" + bytes(client_batch(is_control=True))
    yield b"\0\1" + bytes(client_batch()) * 2


TARGET = Target(name="batches", fuzz=fuzz, seeds=_seeds)
