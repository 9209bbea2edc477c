"""The usual checks of a batch that a client has produced, in one pass over its header.

A broker checks every batch that it receives. Nearly all of them are valid, and none of their
records has to be read. This module accepts such batches without any further call. It returns no
reason for another batch: plogd/log/batch_validator.py then checks the batch step by step, and finds
the error or a rule that needs more work. Both apply the same rules
(tests/unit/log/test_batch_validator_shortcut.py).

setup.py compiles this module (decision 0011): produced_batch.pxd declares its C types.
"""

from plog.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Compression,
)
from plog.records.crc32c import crc32c

MIN_RECORD_BYTES = 7
"""The smallest record: a byte each for its length, attributes, two deltas, absent key, absent value
and header count."""
_LAST_CODEC = int(Compression.ZSTD)


def check_produced_batch(
    data: memoryview, max_bytes: int, latest_timestamp: int
) -> BatchHeader | None:
    """Return the header of the batch in `data`, or None unless the batch is valid and plain.

    `data` must contain exactly one batch of at most `max_bytes` with a matching checksum. The
    client has set no field that only brokers set, and no timestamp after `latest_timestamp` (ms).
    """
    size = len(data)
    if not HEADER_SIZE < size <= max_bytes:
        return None
    fields = HEADER.unpack_from(data)
    (
        base_offset,
        length,
        _,
        magic,
        crc,
        attributes,
        last_offset_delta,
        _,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        count,
    ) = fields
    if magic != MAGIC or length != size - LOG_OVERHEAD or base_offset:
        return None
    # Other attributes are set only by brokers, or belong to a transaction.
    if not 0 <= attributes <= _LAST_CODEC or max_timestamp > latest_timestamp:
        return None
    # Only compaction leaves gaps between offsets.
    if count <= 0 or last_offset_delta != count - 1:
        return None
    if producer_id >= 0 and (base_sequence < 0 or producer_epoch < 0):
        return None
    # Otherwise, a batch of a few bytes could claim two billion records and use up their offsets.
    if not attributes and (size - HEADER_SIZE) // MIN_RECORD_BYTES < count:
        return None
    # The checksum comes last, because it is the only check that reads the whole batch.
    if crc32c(data[ATTRIBUTES_POSITION:]) != crc:
        return None
    # Faster than a call of the class.
    return tuple.__new__(BatchHeader, fields)
