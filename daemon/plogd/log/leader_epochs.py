"""Which leader epoch wrote which offsets of a log.

Each entry tells where an epoch's records begin; it ends where the next begins. A follower and a
leader compare these to find where their logs part (KIP-101, KIP-279), so a log is never cut by a
high watermark. Kept in step with the log: cut when it is cut, moved up when its start moves up.

The file is ``leader-epoch-checkpoint`` (checkpoint_files.py). `assign` changes memory only: on its
own a new epoch needs no sync, because its batches carry it and recovery reads it from there.

Source: Kafka 3.9 LeaderEpochFileCache; KAFKA-10706 for keeping it in step.
Invariant: epochs and start offsets rise strictly from entry to entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable

from plogd.log.disk.checkpoint_files import (
    CorruptCheckpoint,
    EpochEntry,
    read_leader_epochs,
    write_leader_epochs,
)
from plogd.ports import Files

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1


class LeaderEpochs:
    """The epochs of one log. Called on the reactor's thread; writing is a job's work."""

    __slots__ = (
        "_entries",
        "_files",
        "directory",
        "highest",
        "is_dirty",
        "latest_epoch",
        "too_high",
    )

    def __init__(
        self,
        files: Files,
        directory: str,
        entries: Iterable[EpochEntry] = (),
        *,
        highest: int | None = None,
    ) -> None:
        self._files = files
        self.directory = directory
        """Where the file is; set anew when the directory is renamed."""
        self._entries: list[EpochEntry] = []
        self.latest_epoch = UNDEFINED_EPOCH
        """The newest epoch that has records; -1 if there is none."""
        self.highest = highest
        """While a log is loaded: no epoch above it was ever given to a leader; None: unknown."""
        self.too_high: list[EpochEntry] = []
        """What was not taken because of that: no checksum covers a batch's epoch."""
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)
        self.is_dirty = False
        """Whether the file is behind."""

    @classmethod
    def load(cls, files: Files, directory: str, *, highest: int | None = None) -> LeaderEpochs:
        """What the file in `directory` says; nothing if there is none. Raises CorruptCheckpoint."""
        epochs = cls(files, directory, read_leader_epochs(files, directory), highest=highest)
        if epochs.too_high:
            raise CorruptCheckpoint(
                f"{directory}: its epoch {epochs.too_high[0].epoch} is above {highest}, the newest"
            )
        return epochs

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """`epoch` wrote `start_offset`, or is about to; whether that was news.

        So recovery may tell of every batch it finds. Entries it contradicts (from a leader whose
        records were cut) go.
        """
        if self.highest is not None and epoch > self.highest:
            self.too_high.append(EpochEntry(epoch, start_offset))
            return False
        entries = self._entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return False
        if epoch == self.epoch_for_offset(start_offset):
            return False
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self.latest_epoch = epoch
        self.is_dirty = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """The largest epoch <= `epoch`, and the offset where it ended.

        (-1, -1) if `epoch` is newer than all. If it is older than all: itself, and where the oldest
        begins, since what was before that is no longer in the log.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:
            return epoch, log_end_offset
        after = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if after == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        found = self._entries[after - 1].epoch if after else epoch
        return found, self._entries[after].start_offset

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch that wrote `offset`; -1 if that is not known."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[after - 1].epoch if after else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """The log now ends at `end_offset`: drop the epochs that begin at or above it."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
            self.is_dirty = True
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def truncate_from_start(self, start_offset: int) -> None:
        """The log now starts at `start_offset`: the epoch that holds it begins there."""
        after = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if not after:
            return
        moved = EpochEntry(self._entries[after - 1].epoch, start_offset)
        if after > 1 or moved != self._entries[0]:
            self._entries[:after] = [moved]
            self.is_dirty = True

    def clear(self) -> None:
        """Forget everything: the log was emptied, or its records have no epochs."""
        self.is_dirty = self.is_dirty or bool(self._entries)
        self._entries.clear()
        self.latest_epoch = UNDEFINED_EPOCH

    def flush(self) -> None:
        """Durably write the file if it is behind. A job's work. Raises OSError."""
        self.prepare_flush()()

    def prepare_flush(self) -> Callable[[], None]:
        """What a job has to do to write the file as of now; nothing if it is not behind."""
        if not self.is_dirty:
            return _nothing
        entries, files, directory = self.entries, self._files, self.directory
        self.is_dirty = False  # An epoch assigned while the job writes makes it dirty again.

        def write() -> None:
            try:
                write_leader_epochs(files, directory, entries)
            except Exception:
                self.is_dirty = True
                raise

        return write


def _nothing() -> None:
    """The file says what the memory does."""
