"""The leader epochs of a log, each with the offset of its first record.

An epoch ends where the next one begins. From these entries, a follower determines where its log
diverges from the leader's (KIP-101, KIP-279). If the follower truncated its log to its high
watermark instead, records could be lost. Entries are removed or moved when the log is truncated at
either end.

The file is ``leader-epoch-checkpoint`` (disk/checkpoint_files.py). It is written when a segment is
sealed, not for each new epoch (docs/decisions/0003). A crash can undo a deletion of records until
the log start offset is in ``log-start-offset-checkpoint``, so the file contains the epochs of
deleted records until then.

Source: Kafka 3.9 LeaderEpochFileCache; KAFKA-10706 for truncations. Invariant: epochs and start
offsets strictly increase from entry to entry.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

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
    """The epochs of one log. Called on the reactor's thread; jobs write the file."""

    __slots__ = (
        "_below_start",
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
        """The directory of the file; updated when the directory is renamed."""
        self._entries: list[EpochEntry] = []
        self._below_start: list[EpochEntry] = []
        """The entries that `truncate_from_start` has removed or moved, as they were before; they
        are in the file until the log start offset is durable."""
        self.latest_epoch = UNDEFINED_EPOCH
        """The newest epoch that has records; -1 if no epoch has records."""
        self.highest = highest
        """The newest epoch that any leader has had; None if it is unknown, or once the log is
        loaded."""
        # A batch's checksum does not cover its epoch, so a damaged epoch may have any value.
        self.too_high: list[EpochEntry] = []
        """Entries that were rejected because their epochs are above `highest`."""
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)
        self.is_dirty = False
        """Whether the file is out of date."""

    @classmethod
    def load(cls, files: Files, directory: str, *, highest: int | None = None) -> LeaderEpochs:
        """Read the file in `directory`; a missing file is empty. Raises CorruptCheckpoint."""
        epochs = cls(files, directory, read_leader_epochs(files, directory), highest=highest)
        if epochs.too_high:
            raise CorruptCheckpoint(
                f"{directory}: leader epoch {epochs.too_high[0].epoch} is above the newest epoch,"
                f" {highest}"
            )
        return epochs

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Record that `epoch` begins at `start_offset`; return whether this added an entry.

        Recovery calls this for every batch that it finds. Removes entries that contradict the new
        entry.
        """
        # Memory only: a new epoch does not need a sync, because recovery reads it from the batch
        # headers.
        if self.highest is not None and epoch > self.highest:
            self.too_high.append(EpochEntry(epoch, start_offset))
            return False
        entries = self._entries
        if entries and epoch == entries[-1].epoch and start_offset >= entries[-1].start_offset:
            return False
        if epoch == self.epoch_for_offset(start_offset):  # Recovery also finds older batches.
            return False
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        # The entries removed here belong to a leader whose records were truncated.
        while entries and (entries[-1].epoch >= epoch or entries[-1].start_offset >= start_offset):
            entries.pop()
        entries.append(EpochEntry(epoch, start_offset))
        self.latest_epoch = epoch
        self.is_dirty = True
        return True

    def end_offset_for(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch <= `epoch`, and the offset at which it ends.

        Returns (-1, -1) if `epoch` is newer than all entries. If `epoch` is older than all entries,
        returns `epoch` and the start offset of the oldest entry, because the log no longer contains
        earlier records.
        """
        if epoch == UNDEFINED_EPOCH:
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        if epoch == self.latest_epoch:  # No epoch follows it yet, so it ends with the log.
            return epoch, log_end_offset
        after = bisect_right(self._entries, epoch, key=lambda entry: entry.epoch)
        if after == len(self._entries):
            return UNDEFINED_EPOCH, UNDEFINED_OFFSET
        found = self._entries[after - 1].epoch if after else epoch
        return found, self._entries[after].start_offset

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch in which the record at `offset` was written; -1 if it is unknown."""
        after = bisect_right(self._entries, offset, key=lambda entry: entry.start_offset)
        return self._entries[after - 1].epoch if after else UNDEFINED_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after `end_offset`, the new log end."""
        while self._entries and self._entries[-1].start_offset >= end_offset:
            self._entries.pop()
            self.is_dirty = True
        while self._below_start and self._below_start[-1].start_offset >= end_offset:
            self._below_start.pop()
        self.latest_epoch = self._entries[-1].epoch if self._entries else UNDEFINED_EPOCH

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or before `start_offset`, the new log start offset.

        They remain in the file until `log_start_is_durable` is called.
        """
        after = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if not after:
            return
        # The epoch at the new start offset may have later records, so it keeps an entry.
        moved = EpochEntry(self._entries[after - 1].epoch, start_offset)
        if after > 1 or moved != self._entries[0]:
            removed = self._entries[:after]
            # An earlier call may have moved the first entry.
            if self._below_start and self._below_start[-1].epoch == removed[0].epoch:
                del removed[0]
            self._below_start += removed
            self._entries[:after] = [moved]
            self.is_dirty = True

    def log_start_is_durable(self, start_offset: int) -> None:
        """Omit the epochs that end at or before `start_offset` from the file from now on.

        Called when a crash can no longer lower the log start offset below `start_offset`.
        """
        # The file is not written again only for that: startup truncates it at the log start offset.
        if self._entries and self._entries[0].start_offset <= start_offset:
            self._below_start.clear()
            return
        after = bisect_right(self._below_start, start_offset, key=lambda entry: entry.start_offset)
        del self._below_start[: max(0, after - 1)]  # The last one has records at `start_offset`.

    def _entries_in_file(self) -> Sequence[EpochEntry]:
        """Return the entries for the file: all epochs that a log has after a crash."""
        below, entries = self._below_start, self._entries
        if below and entries and entries[0].epoch == below[-1].epoch:
            entries = entries[1:]  # Moved to the log start offset.
        return (*below, *entries)

    def flush(self) -> None:
        """Durably write the file if it is out of date. Runs as a job. Raises OSError."""
        self.prepare_flush()()

    def prepare_flush(self) -> Callable[[], None]:
        """Return a job that writes the current entries if the file is out of date."""
        if not self.is_dirty:
            return _nothing
        entries, files, directory = self._entries_in_file(), self._files, self.directory
        self.is_dirty = False  # An epoch assigned while the job runs sets it again.

        def write() -> None:
            try:
                write_leader_epochs(files, directory, entries)
            except Exception:
                self.is_dirty = True
                raise

        return write


def _nothing() -> None:
    """Do nothing: the file is up to date."""
