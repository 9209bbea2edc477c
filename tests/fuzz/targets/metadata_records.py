"""Records of the metadata log: the image applies them or refuses them with an expected error.

Each record is a length followed by its bytes; all are replayed into one image.
"""

from __future__ import annotations

from collections.abc import Iterator

from plog.wire.internal.metadata_records import (
    METADATA_RECORDS,
    decode_metadata_record,
    encode_metadata_record,
)
from plog.wire.primitives import WireError
from plogd.metadata.image import MetadataImage
from tests.fuzz.target import Target
from tests.unit.wire.filled import filled

_LENGTH_BYTES = 2


def fuzz(data: bytes) -> None:
    """Replay the records; the store adds the position to both expected errors."""
    image = MetadataImage()
    for offset, value in enumerate(_split(data)):
        try:
            record = decode_metadata_record(value)
        except WireError:
            continue
        try:
            changed = image.replay(record, offset)
        except ValueError:
            continue
        for key in changed:
            image.get(key)
    for kind in ("topic", "partition", "config", "acl", "scram", "quota", "broker", "feature"):
        for key, (value, _) in image.load((kind,)).items():
            assert key[0] == kind and value is not None


def _split(data: bytes) -> Iterator[bytes]:
    position = 0
    while position + _LENGTH_BYTES <= len(data):
        size = int.from_bytes(data[position : position + _LENGTH_BYTES], "big")
        position += _LENGTH_BYTES
        yield data[position : position + size]
        position += size


def _seeds() -> Iterator[bytes]:
    everything = b""
    for record in METADATA_RECORDS:
        for version in {record.min_version, record.max_version}:
            value = encode_metadata_record(filled(record, version, 1, long=False), version)
            one = len(value).to_bytes(_LENGTH_BYTES, "big") + value
            everything += one
            yield one
    yield everything


TARGET = Target(name="metadata_records", fuzz=fuzz, seeds=_seeds)
