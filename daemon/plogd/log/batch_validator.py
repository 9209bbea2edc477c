"""Validate a record batch before the log appends it, and convert it as the topic requires.

Size, checksum and header are checked in place; the batch is copied only if the topic's
``compression.type`` requires another codec. Records are read only where the header does not
suffice: to require keys on a compacted topic, to enforce a lower bound on timestamps, to change the
codec, and to check records for a coordinator. Kafka decompresses every batch and checks each
record. Here, a correct checksum and a consistent header suffice, because the producer wrote both.

producer_state.py checks sequence numbers; log.py assigns offsets and leader epochs. `Log` calls
`validate_batch` on the reactor's thread, immediately before it writes the batch. If `bytes_to_read`
returns more than `INLINE_BYTES`, replica/append_queue.py calls `validate_batch` in a job instead.

Source: Kafka 3.9 LogValidator, UnifiedLog.analyzeAndValidateRecords; KIP-32, KIP-98, KIP-937.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Final, NamedTuple

from plog.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    KafkaError,
    MessageTooLarge,
    UnsupportedCompressionType,
    UnsupportedForMessageFormat,
)
from plog.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    BatchHeader,
    Compression,
    parse_header,
    set_append_time,
)
from plog.records.builder import rebuild_batch
from plog.records.codec import decode_records, walk_records
from plog.records.compression import DecompressionTooLarge
from plog.records.crc32c import crc32c
from plog.records.produced_batch import MIN_RECORD_BYTES
from plog.records.reader import read_payload
from plogd.topic_config import TopicConfig

NO_TIMESTAMP = -1

_UNBOUNDED_MS = 1 << 62  # The sum of this number and any current time fits in 64 bits.
_ANY_AGE = 2**63 - 1  # Default of message.timestamp.before.max.ms, as in Kafka (Long.MAX_VALUE).
# Attributes that a client must not set: only a broker writes batches with them.
_BROKERS_ONLY = CONTROL_BIT | DELETE_HORIZON_BIT | LOG_APPEND_TIME_BIT

MAX_EXPANSION: Final = 16
"""The limit on the uncompressed size of a batch that must be decompressed, as a multiple of
max.message.bytes (decision 0005). Most producers limit the uncompressed size of a batch, and stay
far below this limit."""
# Reading this many records takes a quarter of a second.
MAX_WALKED_RECORDS: Final = 250_000
"""Maximum number of records in a batch whose records must be read."""
# Checking a key and a value takes about 20 times as long as only reading the record.
MAX_CHECKED_RECORDS: Final = 10_000
"""Maximum number of records in a batch whose keys and values must be checked."""
# gzip -9 needs 3 ms for the worst 2 KiB.
INLINE_BYTES: Final = 2048
"""The number of bytes of records that the reactor reads per request; a job reads more."""
FAR_TOO_MANY: Final = 1 << 30
"""A number of bytes that always requires a job."""
DECOMPRESSED_MAX_BYTES: Final = 64 << 20
"""The default of ``plog.decompressed.batch.max.bytes``."""
_NO_BOUND: Final = 1 << 63  # More than any timestamp, which is an int64.
_RECORDS_PER_STEP = 500

# Without "producer", Kafka's default, which keeps the codec of each batch.
_CODEC_BY_NAME = {
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


RecordCheck = Callable[[bytes | None, bytes | None], None]
"""Checks the key and value of one record. Raises InvalidRecord."""


class DecompressedTooLarge(MessageTooLarge):
    """The uncompressed size of a batch exceeds the limit."""


class AppendOrigin(Enum):
    """The source of a batch, which determines how the batch is checked."""

    CLIENT = "client"
    """A produce request: everything is checked."""
    COORDINATOR = "coordinator"
    """A coordinator of this broker. Coordinators may write control batches, and do not use sequence
    numbers. Their records are stored in the codec that they have chosen."""
    REPLICATION = "replication"
    """A fetch from the leader, which has validated the batch: only the size and the checksum are
    checked."""
    RAFT_LEADER = "raft-leader"
    """The writer of the metadata log. max.message.bytes does not limit its batches."""


class ValidatedBatch(NamedTuple):
    """A valid batch, to which the log can assign offsets."""

    view: memoryview
    """The whole batch and nothing else; writable."""
    header: BatchHeader
    """The header in `view`, still with the base offset and leader epoch that the sender set."""
    max_timestamp: int
    # Not the delta of the record with this timestamp, because time indexes refer to batches.
    max_timestamp_offset_delta: int
    """The offset delta of the batch's last record."""
    log_append_time_ms: int
    """The timestamp that the broker set for all records; -1 if the records keep their own."""

    @classmethod
    def unchanged(cls, view: memoryview, header: BatchHeader) -> ValidatedBatch:
        """Return the batch for a view that is stored as it is."""
        fields = (view, header, header.max_timestamp, header.last_offset_delta, NO_TIMESTAMP)
        # Faster than a call of the class; this runs for every produced batch.
        return tuple.__new__(cls, fields)


class BatchRules(NamedTuple):
    """The requirements for a topic's batches, computed whenever its settings change."""

    config: TopicConfig
    max_bytes: int
    target: Compression | None
    """The codec of all stored batches; None if each batch keeps its codec."""
    is_compacted: bool
    by_broker: bool
    """Whether the broker sets the timestamps of records."""
    max_ahead_ms: int
    """The maximum time by which a timestamp may be ahead of the current time; at most 2**62."""
    is_plain: bool
    """Whether a valid batch is stored unchanged unless its timestamp is too far in the future."""

    @classmethod
    def of(cls, config: TopicConfig) -> BatchRules:
        """Return the rules for a topic with these settings."""
        target = _CODEC_BY_NAME.get(config.compression_type)
        by_broker, is_compacted = config.uses_log_append_time, config.is_compacted
        takes_any_age = config.message_timestamp_before_max_ms == _ANY_AGE
        return cls(
            config=config,
            max_bytes=config.max_message_bytes,
            target=target,
            is_compacted=is_compacted,
            by_broker=by_broker,
            max_ahead_ms=min(config.message_timestamp_after_max_ms, _UNBOUNDED_MS),
            is_plain=target is None and takes_any_age and not (by_broker or is_compacted),
        )


def _proceed() -> None:
    """Do nothing: validation on the reactor is never aborted."""


class RecordReading(NamedTuple):
    """The limits and callbacks for batches whose records must be read."""

    max_decompressed_bytes: int = DECOMPRESSED_MAX_BYTES
    """The limit on a batch's uncompressed size, in addition to `MAX_EXPANSION`."""
    check_record: RecordCheck | None = None
    """Checks each record; None for topics that no coordinator reads."""
    on_step: Callable[[], None] = _proceed
    """Called between the steps of a long validation; an exception aborts the validation."""


_INLINE_READING = RecordReading()


def bytes_to_read(data: memoryview, rules: BatchRules, now_ms: int) -> int:
    """Return the number of bytes of records that must be read to validate a client's batch.

    Returns `FAR_TOO_MANY` for a compressed batch. Reads only the header, which has not been
    checked yet.
    """
    if rules.is_plain or len(data) <= HEADER_SIZE:
        return 0
    header = BatchHeader._make(HEADER.unpack_from(data))
    if not any(_work_on_records(header, rules, now_ms, AppendOrigin.CLIENT)):
        return 0
    # The uncompressed size is not in the header.
    return FAR_TOO_MANY if header.attributes & COMPRESSION_MASK else len(data) - HEADER_SIZE


def validate_batch(
    data: memoryview,
    *,
    rules: BatchRules,
    now_ms: int,
    origin: AppendOrigin,
    reading: RecordReading = _INLINE_READING,
) -> ValidatedBatch:
    """Check the single batch in `data`, convert it for the topic, and return it with its header.

    Raises CorruptMessage, MessageTooLarge, InvalidRecord, InvalidTimestamp,
    UnsupportedForMessageFormat, UnsupportedCompressionType, or an error from a callback in
    `reading`.
    """
    header = check_header(data, rules, origin)
    attributes = header.attributes
    if header.size_bytes != len(data):  # As in Kafka's ProduceRequest.validateRecords.
        raise InvalidRecord("a produce request must contain exactly one record batch per partition")
    if origin is AppendOrigin.CLIENT:
        _check_client_header(header)
    if attributes & COMPRESSION_MASK > Compression.ZSTD:
        raise UnsupportedCompressionType(
            f"compression type {attributes & COMPRESSION_MASK} is not supported"
        )
    return _shape(data, header, rules, now_ms, origin, reading)


def _ready(view: memoryview, header: BatchHeader, log_append_time_ms: int) -> ValidatedBatch:
    return ValidatedBatch(
        view, header, header.max_timestamp, header.last_offset_delta, log_append_time_ms
    )


def check_header(data: memoryview, rules: BatchRules, origin: AppendOrigin) -> BatchHeader:
    """Return the header of the first batch in `data`, after checking its size and checksum.

    Raises CorruptMessage, MessageTooLarge, InvalidRecord, UnsupportedForMessageFormat.
    """
    available = len(data)
    if available < HEADER_SIZE or data[MAGIC_POSITION] != MAGIC:
        raise _not_a_batch(data)
    header = BatchHeader._make(HEADER.unpack_from(data))
    size_bytes = header.size_bytes
    if not HEADER_SIZE <= size_bytes <= available:
        raise CorruptMessage(
            f"the header of a record batch specifies a size of {size_bytes} bytes, which is not"
            f" between {HEADER_SIZE} and {available}, the number of bytes sent"
        )
    if size_bytes > rules.max_bytes and origin is not AppendOrigin.RAFT_LEADER:
        raise _too_large(size_bytes, rules.config)
    # The checksum comes last, because it is the only check that reads the whole batch.
    if crc32c(data[ATTRIBUTES_POSITION:size_bytes]) != header.crc:
        raise CorruptMessage(f"the checksum of a {size_bytes}-byte batch does not match")
    return header


def _not_a_batch(data: memoryview) -> KafkaError:
    """Return the error for data that does not begin with a batch header (magic 2)."""
    if not len(data):
        return InvalidRecord("no record batch was sent")
    if len(data) <= MAGIC_POSITION:
        return CorruptMessage(f"{len(data)} bytes are not a record batch")
    magic = data[MAGIC_POSITION]
    if magic in (0, 1):
        return UnsupportedForMessageFormat(f"magic {magic} is not supported; use magic {MAGIC}")
    return CorruptMessage(f"{len(data)} bytes with magic {magic} are not a record batch")


def _too_large(size_bytes: int, config: TopicConfig) -> MessageTooLarge:
    return MessageTooLarge(
        f"a batch of {size_bytes} bytes exceeds max.message.bytes={config.max_message_bytes}"
    )


def _check_client_header(header: BatchHeader) -> None:
    """Check that a client has set only permitted header fields, to consistent values."""
    base_offset, length, _, _, _, attributes, last_delta, _, _, producer, epoch, sequence, count = (
        header
    )
    if base_offset:  # As in Kafka's UnifiedLog.analyzeAndValidateRecords.
        raise InvalidRecord(f"the base offset must be 0, not {base_offset}")
    if count <= 0 or last_delta != count - 1:  # Only compaction leaves gaps between offsets.
        raise InvalidRecord(f"{count} records do not match a last offset delta of {last_delta}")
    if attributes & _BROKERS_ONLY:
        if attributes & LOG_APPEND_TIME_BIT:
            raise InvalidTimestamp("clients must not set the timestamp type LogAppendTime")
        raise InvalidRecord("clients must not write control batches or delete horizons")
    if producer >= 0 and (sequence < 0 or epoch < 0):
        raise InvalidRecord(
            f"producer {producer} sent an invalid sequence number or epoch: {sequence}, {epoch}"
        )
    # Otherwise, a batch of a few bytes could claim two billion records and use up their offsets.
    payload_bytes = length + LOG_OVERHEAD - HEADER_SIZE
    if not attributes & COMPRESSION_MASK and payload_bytes < count * MIN_RECORD_BYTES:
        raise InvalidRecord(f"{count} records do not fit in {payload_bytes} bytes")
    if not payload_bytes:
        raise InvalidRecord(f"a batch of {count} records has an empty payload")


def _work_on_records(
    header: BatchHeader, rules: BatchRules, now_ms: int, origin: AppendOrigin
) -> tuple[bool, bool]:
    """Return whether the records must be recompressed, and whether each of them must be checked."""
    # A coordinator chooses the codec and the keys of its records (see `AppendOrigin`).
    if header.is_control or origin is AppendOrigin.COORDINATOR:
        return False, False
    recompress = rules.target is not None and header.attributes & COMPRESSION_MASK != rules.target
    check_each = rules.is_compacted or (
        not rules.by_broker and _may_be_too_old(header, rules.config, now_ms)
    )
    return recompress, check_each


def _shape(
    view: memoryview,
    header: BatchHeader,
    rules: BatchRules,
    now_ms: int,
    origin: AppendOrigin,
    reading: RecordReading,
) -> ValidatedBatch:
    """Return the batch with the codec, timestamps and keys that the topic requires."""
    config, by_broker = rules.config, rules.by_broker
    recompress, check_each = _work_on_records(header, rules, now_ms, origin)
    if recompress or check_each or reading.check_record is not None:
        payload = _payload(view, header, config, reading)
        max_timestamp = _walk(payload, header, config, now_ms if check_each else None)
        if reading.check_record is not None:
            _check_records(payload, header, reading.check_record, reading.on_step)
        if recompress:
            assert rules.target is not None
            view, header = _rebuild(payload, header, rules.target, config, max_timestamp, reading)
    if by_broker:
        return _ready(view, set_append_time(view, 0, header, now_ms), now_ms)
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise _bad_timestamp(header.max_timestamp, config, now_ms)
    return _ready(view, header, NO_TIMESTAMP)


def _may_be_too_old(header: BatchHeader, config: TopicConfig, now_ms: int) -> bool:
    """Return whether, judging by the header, a record may be older than the topic accepts."""
    oldest = now_ms - config.message_timestamp_before_max_ms
    if oldest <= 0:  # Timestamps are never negative.
        return False
    # The header contains the first and the largest timestamp, but not the smallest.
    return header.records_count > 1 or header.max_timestamp < oldest


def _payload(
    view: memoryview, header: BatchHeader, config: TopicConfig, reading: RecordReading
) -> bytes:
    """Return the records, uncompressed. Raises MessageTooLarge if a limit is exceeded."""
    is_checked = reading.check_record is not None
    max_records = MAX_CHECKED_RECORDS if is_checked else MAX_WALKED_RECORDS
    if header.records_count > max_records:
        raise MessageTooLarge(
            f"a batch has {header.records_count} records; in a topic whose records the broker"
            f" reads, at most {max_records} are allowed"
        )
    expected_bytes = MAX_EXPANSION * max(config.max_message_bytes, len(view))
    max_bytes = min(expected_bytes, reading.max_decompressed_bytes)
    try:
        return read_payload(view, 0, header, max_bytes=max_bytes)
    except DecompressionTooLarge:
        raise DecompressedTooLarge(
            f"a batch of {len(view)} bytes would exceed {max_bytes} bytes when decompressed; in a"
            f" topic whose records the broker reads, the limit is {MAX_EXPANSION} times"
            " max.message.bytes, but at most plog.decompressed.batch.max.bytes"
        ) from None


def _check_records(
    payload: bytes, header: BatchHeader, check: RecordCheck, on_step: Callable[[], None]
) -> None:
    for number, record in enumerate(decode_records(payload, header)):
        if not number % _RECORDS_PER_STEP:
            # Otherwise, an abandoned append would occupy the lane until all its records are
            # checked.
            on_step()
        check(record.key, record.value)


def _walk(payload: bytes, header: BatchHeader, config: TopicConfig, now_ms: int | None) -> int:
    """Return the largest timestamp; check keys and timestamps unless `now_ms` is None."""
    oldest, newest = -_NO_BOUND, _NO_BOUND
    if now_ms is not None and not config.uses_log_append_time:
        oldest = now_ms - config.message_timestamp_before_max_ms
        newest = now_ms + config.message_timestamp_after_max_ms
    keyless, max_timestamp = 0, NO_TIMESTAMP
    # The limit for records also applies to headers, because an empty header takes only two bytes
    # (decision 0005).
    for _, timestamp, has_key in walk_records(payload, header, max_headers=MAX_WALKED_RECORDS):
        keyless += not has_key
        max_timestamp = max(max_timestamp, timestamp)
        # As in Kafka's LogValidator, records without a timestamp are accepted.
        if not oldest <= timestamp <= newest and timestamp != NO_TIMESTAMP:
            raise _bad_timestamp(timestamp, config, now_ms or 0)
        if timestamp < NO_TIMESTAMP:
            raise InvalidTimestamp(f"timestamp {timestamp} is negative")
    if keyless and now_ms is not None and config.is_compacted:
        raise InvalidRecord(f"{keyless} records do not have a key; a compacted topic requires keys")
    return max_timestamp


def _bad_timestamp(timestamp: int, config: TopicConfig, now_ms: int) -> InvalidTimestamp:
    return InvalidTimestamp(
        f"timestamp {timestamp} is not within [{now_ms - config.message_timestamp_before_max_ms}, "
        f"{now_ms + config.message_timestamp_after_max_ms}]"
    )


def _rebuild(
    payload: bytes,
    header: BatchHeader,
    target: Compression,
    config: TopicConfig,
    max_timestamp: int,
    reading: RecordReading,
) -> tuple[memoryview, BatchHeader]:
    """Recompress the batch with the codec `target`. Raises MessageTooLarge as early as possible."""
    levels = {
        Compression.GZIP: config.compression_gzip_level,
        Compression.LZ4: config.compression_lz4_level,
        Compression.ZSTD: config.compression_zstd_level,
    }

    def on_step(nbytes: int) -> None:
        # Once the result is too large, compressing the remaining records could still take seconds
        # (decision 0015).
        if HEADER_SIZE + nbytes > config.max_message_bytes:
            raise _too_large(HEADER_SIZE + nbytes, config)
        reading.on_step()

    if target is Compression.NONE:  # The size of the result is already known.
        on_step(len(payload))
    rebuilt = rebuild_batch(
        header,
        payload,
        compression=target,
        level=levels.get(target),
        max_timestamp=max_timestamp,
        on_step=on_step,
    )
    return memoryview(rebuilt), parse_header(rebuilt)
