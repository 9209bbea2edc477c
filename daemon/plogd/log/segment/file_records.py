"""Record batches in a file: append them, iterate over their headers, and return slices of them.

`FileRecords` is the ``.log`` file of one segment. `FileRegion` is a slice that a fetch response
sends to the socket. The bounds of the slice are fixed before sending begins, and the slice keeps
the file open, so the segment can be deleted in the meantime. This module neither decompresses
batches nor checks their CRCs; recovery (recovery/segment_recovery.py) and the readers of the
batches do that.

Invariant: ``[0, size_bytes)`` consists of whole batches except for `corrupt_ranges`, which
iteration skips. A failed append leaves `size_bytes` unchanged; the bytes that it has written are
removed immediately, or before the next append.

Source: Kafka 3.9 FileRecords, FileLogInputStream; KAFKA-9835 for the fixed slice.
"""

from __future__ import annotations

import contextlib
import posixpath
import struct
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, cast

from plog.errors import CorruptMessage, PlogError
from plog.records.batch import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, parse_header
from plogd.descriptor_budget import DescriptorBudget
from plogd.log.file_names import is_metadata_dir
from plogd.log.segment.copied_records import COPIED_MAX_BYTES, CopiedRecords
from plogd.log.segment.uncached_lookup import uncached_range
from plogd.ports import Buffer, File

READ_CHUNK_BYTES = 64 * 1024
_WARM_BYTES = 1 << 20
"""Number of bytes that a job reads for an uncached lookup. This is more than the lookup needs, so
that the batches to be sent are also in the page cache."""

_PLACE = struct.Struct(">qi4xb6xi")
"""The fields needed to find a batch: base offset, batch length, magic, last offset delta."""

_MAGIC = 2


class RegionTruncated(PlogError):
    """The file ends inside a region, because it was truncated after the region was created."""


class BatchPlace(NamedTuple):
    """The position and size of a batch in the file, and its offsets."""

    position: int
    size_bytes: int
    base_offset: int
    last_offset: int


class CorruptRange(NamedTuple):
    """Damaged bytes that recovery has kept, because valid batches follow them or once did."""

    position: int
    end_position: int
    base_offset: int
    end_offset: int


class FileRegion:
    """Bytes ``[position, position + nbytes)`` of an open file, for sendfile or a single read.

    A region keeps the file open until `close`, which the owner of the region must call.
    """

    __slots__ = ("_counted", "_open", "file", "nbytes", "position")

    def __init__(
        self, file: File, position: int, nbytes: int, counted: deque[None] | None = None
    ) -> None:
        """Retain `file`, and add an element to `counted` (`DescriptorBudget.regions`)."""
        self.file = file.retain()
        self._counted = counted
        if counted is not None:
            counted.append(None)
        self.position = position
        self.nbytes = nbytes
        self._open = True

    @property
    def end_position(self) -> int:
        """The position in the file after the region."""
        return self.position + self.nbytes

    def read(self) -> bytes:
        """Read the whole region. Raises RegionTruncated if the file has become shorter."""
        data = self.file.pread(self.nbytes, self.position)
        if len(data) != self.nbytes:
            raise RegionTruncated(
                f"{self.file.path} no longer contains {self.nbytes} bytes at {self.position}"
            )
        return data

    def close(self) -> None:
        """Release the file. Idempotent."""
        # A second call would otherwise remove the hold of another reader.
        if self._open:
            self._open = False
            self.file.close()
            if self._counted is not None:
                self._counted.pop()

    def __repr__(self) -> str:
        return f"FileRegion({self.file.path!r}, {self.position}, {self.nbytes})"


class FileRecords:
    """The batches of a ``.log`` file. One thread appends; any thread reads."""

    __slots__ = ("_descriptors", "_torn", "_writer", "corrupt_ranges", "file", "size_bytes")

    def __init__(self, file: File, descriptors: DescriptorBudget | None = None) -> None:
        """Take over `file`; `descriptors` limits how many regions keep their files open."""
        self.file = file
        self._descriptors = descriptors
        self._writer: File | None = None
        """The open file, from the first append until `end_writing`."""
        try:
            self.size_bytes = file.size()
        except Exception:
            file.close()
            raise
        self.corrupt_ranges: list[CorruptRange] = []
        """Damage that recovery has kept, in file order."""
        self._torn = False

    def append(self, data: Buffer) -> int:
        """Write whole batches at the end; return the position of the first batch.

        If this raises, nothing was appended. Bytes that remain in the file are removed by the next
        `repair` or append.
        """
        position = self.size_bytes
        if self._torn:  # Otherwise, the batch would follow the remains of a failed append.
            self.repair()
        writer = self._writer
        if writer is None:
            writer = self._begin_writing()
        try:
            writer.append(data)
        except Exception:  # After any error, part of the data may be in the file.
            self._torn = True
            with contextlib.suppress(Exception):
                self.repair()
            raise
        self.size_bytes = position + len(data)
        return position

    def _begin_writing(self) -> File:
        # Reserved, so that clients and other logs cannot use up the metadata log's descriptors.
        is_reserved = is_metadata_dir(posixpath.dirname(self.file.path))
        self._writer = self.file.retain_for_writing(is_reserved=is_reserved)
        return self._writer

    @property
    def is_being_written(self) -> bool:
        """Whether the file has a descriptor for appends."""
        return self._writer is not None

    def end_writing(self) -> None:
        """Stop appending: the file pool can then close the descriptor. The file must be durable."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
            self.file.end_writing()

    def close(self) -> None:
        """Release the file, which stays open as long as a region uses it."""
        self.end_writing()
        self.file.close()

    def repair(self) -> None:
        """Remove bytes that remain after a failed append. Raises OSError."""
        if self._torn:
            self.file.truncate(self.size_bytes)
            self._torn = False

    def end_at(self, size_bytes: int) -> None:
        """End the records for readers, before `truncate` or `repair` removes the other bytes."""
        if size_bytes < self.size_bytes:
            self.size_bytes = size_bytes
            self.corrupt_ranges = [one for one in self.corrupt_ranges if one.position < size_bytes]
            self._torn = True  # If the truncation fails, the next append repeats it.

    def truncate(self, size_bytes: int) -> int:
        """Truncate to `size_bytes`, a batch boundary; return the number of bytes removed."""
        assert 0 <= size_bytes <= self.size_bytes, (size_bytes, self.size_bytes)
        cut = self.size_bytes - size_bytes
        if cut:
            # Before the truncation, because readers read up to `size_bytes`.
            self.end_at(size_bytes)
            self.repair()
        return cut

    def read(self, position: int, nbytes: int) -> bytes:
        """Read up to `nbytes` from `position`, but not past the last whole batch."""
        return self.file.pread(max(0, min(nbytes, self.size_bytes - position)), position)

    @property
    def can_keep_open(self) -> bool:
        """Whether a region can keep the file open; otherwise, regions should be short."""
        descriptors = self._descriptors
        return self._writer is not None or descriptors is None or descriptors.has_room_for_region

    def region(self, position: int, nbytes: int, *, nowait: bool = False) -> FileRegion:
        """Return a slice for a response; the caller closes the slice.

        If descriptors are scarce, a short slice is a copy. With `nowait`, raises UncachedLookup.
        """
        # The size is fixed now: if it were computed while sending, it might include later appends
        # (KAFKA-9835).
        assert position + nbytes <= self.size_bytes, (position, nbytes, self.size_bytes)
        if self._writer is not None:
            return FileRegion(self._writer, position, nbytes)
        if nbytes <= COPIED_MAX_BYTES and not self.can_keep_open:
            data = self._read_cached(position, nbytes) if nowait else self.read(position, nbytes)
            copied = CopiedRecords(self.file.path, position, data)
            return FileRegion(cast(File, copied), position, nbytes)
        counted = None if self._descriptors is None else self._descriptors.regions
        return FileRegion(self.file, position, nbytes, counted)

    def header_at(self, position: int) -> BatchHeader | None:
        """Return the header of the batch at `position`; None at the end of the file.

        Raises CorruptMessage if no whole batch begins there.
        """
        for _, header in self.batches_from(position):
            return header
        return None

    def batches_from(
        self, position: int = 0, end_position: int | None = None
    ) -> Iterator[tuple[int, BatchHeader]]:
        """Yield the position and header of each batch that ends at or before `end_position`.

        Skips known damage. Costs one pread per 64 KiB of small batches, and one pread per larger
        batch. Raises CorruptMessage if the bytes are not a whole batch.
        """
        for place, chunk, chunk_position in self._walk(position, end_position):
            yield place.position, parse_header(chunk, place.position - chunk_position)

    def places_from(self, position: int = 0, *, nowait: bool = False) -> Iterator[BatchPlace]:
        """Yield the place of each batch, which costs less than `batches_from`.

        With `nowait`, raises UncachedLookup.
        """
        for place, _, _ in self._walk(position, None, nowait=nowait):
            yield place

    def find_offset(self, offset: int, position: int, *, nowait: bool = False) -> BatchPlace | None:
        """Return the first batch at or after `position` that ends at or after `offset`, or None.

        With `nowait`, raises UncachedLookup.
        """
        for place in self.places_from(position, nowait=nowait):
            if place.last_offset >= offset:
                return place
        return None

    def _read_cached(self, position: int, nbytes: int) -> Buffer:
        """Read from the page cache only. Raises UncachedLookup."""
        left = self.size_bytes - position
        data = self.file.pread_nowait(min(nbytes, left), position)
        if data is None:
            raise uncached_range(self.file, position, min(_WARM_BYTES, left))
        return data

    def _walk(
        self, position: int, end_position: int | None, *, nowait: bool = False
    ) -> Iterator[tuple[BatchPlace, Buffer, int]]:
        """Yield each batch with a chunk that holds its whole header, and the chunk's position."""
        chunk: Buffer = b""
        chunk_position = position
        read = self._read_cached if nowait else self.read
        end = self.size_bytes if end_position is None else min(end_position, self.size_bytes)
        while True:
            position = self._skip_damage(position)
            if position >= end:
                return
            chunk_end = chunk_position + len(chunk)
            if position + HEADER_SIZE > chunk_end:
                # The first read covers two index intervals, because most callers look for an offset
                # shortly after an index entry. If a batch has ended far after its chunk, the next
                # one is probably as large, and only its header is needed.
                is_dense = bool(chunk) and position - chunk_end < READ_CHUNK_BYTES
                wanted = READ_CHUNK_BYTES if is_dense else READ_CHUNK_BYTES // 8
                chunk, chunk_position = read(position, wanted), position
            if position - chunk_position + HEADER_SIZE > len(chunk):
                raise self._corrupt(position, "the file ends inside a batch header")
            base_offset, length, magic, delta = _PLACE.unpack_from(chunk, position - chunk_position)
            next_position = position + LOG_OVERHEAD + length
            # If the length were smaller, the next batch would begin inside this header.
            if magic != _MAGIC or length < HEADER_SIZE - LOG_OVERHEAD or delta < 0:
                raise self._corrupt(
                    position, f"invalid batch header (magic {magic}, length {length})"
                )
            if next_position > self.size_bytes:
                raise self._corrupt(
                    position, f"a batch of length {length} extends beyond the end of the file"
                )
            if next_position > end:
                return
            place = BatchPlace(position, LOG_OVERHEAD + length, base_offset, base_offset + delta)
            yield place, chunk, chunk_position
            position = next_position

    def _skip_damage(self, position: int) -> int:
        """Return `position`, or the end of the damage if `position` is damaged."""
        for damaged in self.corrupt_ranges:
            if damaged.position <= position < damaged.end_position:
                position = damaged.end_position
        return position

    def _corrupt(self, position: int, what: str) -> CorruptMessage:
        return CorruptMessage(f"{self.file.path} is damaged at byte {position}: {what}")
