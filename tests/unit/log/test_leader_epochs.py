"""Leader epochs: which offsets each wrote, in a log that is truncated at both ends."""

from __future__ import annotations

import errno

import pytest

from plogd.log.disk.checkpoint_files import CorruptCheckpoint
from plogd.log.leader_epochs import LeaderEpochs
from tests.helpers.sim.sim_files import SimFiles


def _epochs(*entries: tuple[int, int]) -> LeaderEpochs:
    epochs = LeaderEpochs(SimFiles(["/log"]), "/log")
    for entry in entries:
        epochs.assign(*entry)
    return epochs


def test_each_epoch_is_recorded_with_its_first_offset() -> None:
    epochs = _epochs()
    assert epochs.latest_epoch == -1
    assert epochs.assign(0, 0)
    assert not epochs.assign(0, 5)
    assert epochs.assign(3, 10)
    assert not epochs.assign(3, 12)
    assert epochs.entries == ((0, 0), (3, 10))
    assert epochs.latest_epoch == 3


@pytest.mark.parametrize(
    ("entry", "left"),
    [
        ((5, 20), [(1, 0), (2, 10), (5, 20)]),
        ((5, 15), [(1, 0), (2, 10), (5, 15)]),
        ((5, 10), [(1, 0), (5, 10)]),
        ((3, 25), [(1, 0), (2, 10), (3, 25)]),
        ((2, 25), [(1, 0), (2, 25)]),
        ((9, 0), [(9, 0)]),
        ((4, 15), [(1, 0), (2, 10), (4, 15)]),
    ],
)
def test_new_entry_removes_contradicting_ones(
    entry: tuple[int, int], left: list[tuple[int, int]]
) -> None:
    epochs = _epochs((1, 0), (2, 10), (4, 20))
    epochs.assign(*entry)
    assert list(epochs.entries) == left


def test_assigning_every_batch_again_changes_nothing() -> None:
    """As recovery does, from the middle of the log on."""
    epochs = _epochs((1, 0), (2, 10), (4, 20))
    for epoch, offset in ((1, 0), (1, 5), (2, 12), (2, 19), (4, 20), (4, 25)):
        assert not epochs.assign(epoch, offset)
    assert epochs.entries == ((1, 0), (2, 10), (4, 20))


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (-1, (-1, -1)),
        (0, (0, 5)),
        (1, (1, 10)),
        (2, (2, 20)),
        (3, (2, 20)),
        (4, (4, 30)),
        (5, (-1, -1)),
    ],
)
def test_end_offset_is_that_of_the_largest_epoch_not_above_the_requested(
    epoch: int, answer: tuple[int, int]
) -> None:
    assert _epochs((1, 5), (2, 10), (4, 20)).end_offset_for(epoch, 30) == answer


def test_lookups_without_epochs_return_undefined() -> None:
    assert _epochs().end_offset_for(0, 30) == (-1, -1)
    assert _epochs().epoch_for_offset(3) == -1


def test_epoch_for_offset_returns_the_epoch_that_wrote_it() -> None:
    epochs = _epochs((1, 5), (2, 10))
    assert [epochs.epoch_for_offset(offset) for offset in (4, 5, 9, 10, 99)] == [-1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    ("end", "left"),
    [(0, []), (5, []), (6, [(1, 5)]), (10, [(1, 5)]), (11, [(1, 5), (2, 10)])],
)
def test_truncate_from_end_removes_later_epochs(end: int, left: list[tuple[int, int]]) -> None:
    epochs = _epochs((1, 5), (2, 10))
    epochs.truncate_from_end(end)
    assert list(epochs.entries) == left


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, [(1, 5), (2, 10)]),
        (5, [(1, 5), (2, 10)]),
        (7, [(1, 7), (2, 10)]),
        (10, [(2, 10)]),
        (12, [(2, 12)]),
    ],
)
def test_truncate_from_start_moves_the_oldest_epoch(
    start: int, left: list[tuple[int, int]]
) -> None:
    epochs = _epochs((1, 5), (2, 10))
    epochs.flush()
    epochs.truncate_from_start(start)
    assert list(epochs.entries) == left
    assert epochs.is_dirty == (left != [(1, 5), (2, 10)])


def test_file_keeps_the_epochs_below_a_log_start_that_is_not_durable() -> None:
    """A crash brings deleted records back until the log start offset is in its checkpoint."""
    epochs = _epochs((1, 5), (2, 10), (4, 20), (6, 30))
    for start in (12, 15, 25):
        epochs.truncate_from_start(start)
    assert epochs.entries == ((4, 25), (6, 30))
    assert _written(epochs) == ((1, 5), (2, 10), (4, 20), (6, 30))


@pytest.mark.parametrize(
    ("durable", "written"),
    [
        (4, [(1, 5), (2, 10), (4, 20), (6, 30)]),
        (9, [(1, 5), (2, 10), (4, 20), (6, 30)]),
        (10, [(2, 10), (4, 20), (6, 30)]),
        (24, [(4, 20), (6, 30)]),
        (25, [(4, 25), (6, 30)]),
    ],
)
def test_file_omits_epochs_below_the_durable_log_start(
    durable: int, written: list[tuple[int, int]]
) -> None:
    epochs = _epochs((1, 5), (2, 10), (4, 20), (6, 30))
    epochs.truncate_from_start(25)
    epochs.log_start_is_durable(durable)
    assert _written(epochs) == tuple(written)


def test_truncation_below_a_deletion_removes_epochs_from_the_file() -> None:
    epochs = _epochs((1, 5), (2, 10), (4, 20))
    epochs.truncate_from_start(25)
    epochs.truncate_from_end(0)
    assert _written(epochs) == ()


def _written(epochs: LeaderEpochs) -> tuple[tuple[int, int], ...]:
    epochs.is_dirty = True
    epochs.flush()
    return tuple(LeaderEpochs.load(epochs._files, "/log").entries)


def test_file_has_kafkas_format_and_is_written_only_when_outdated() -> None:
    files = SimFiles(["/log"])
    epochs = LeaderEpochs.load(files, "/log")
    epochs.flush()
    assert files.listdir("/log") == []
    epochs.assign(1, 5)
    epochs.assign(2, 10)
    epochs.flush()
    assert files.read_file("/log/leader-epoch-checkpoint") == b"0\n2\n1 5\n2 10\n"
    loaded = LeaderEpochs.load(files, "/log")
    assert loaded.entries == epochs.entries
    assert not loaded.is_dirty
    before = files.operations
    loaded.flush()
    assert files.operations == before


def test_epoch_assigned_during_a_write_is_written_by_the_next() -> None:
    files = SimFiles(["/log"])
    epochs = LeaderEpochs(files, "/log")
    epochs.assign(1, 5)
    write = epochs.prepare_flush()
    epochs.assign(2, 10)
    write()
    assert LeaderEpochs.load(files, "/log").entries == ((1, 5),)
    assert epochs.is_dirty
    epochs.flush()
    assert LeaderEpochs.load(files, "/log").entries == ((1, 5), (2, 10))


def test_failed_write_is_retried() -> None:
    files = SimFiles(["/log"])
    epochs = LeaderEpochs(files, "/log")
    epochs.assign(1, 5)
    files.fail_when(lambda operation: operation.name == "append", errno.ENOSPC)
    with pytest.raises(OSError, match="No space"):
        epochs.flush()
    files.fail_no_more()
    epochs.flush()
    assert LeaderEpochs.load(files, "/log").entries == ((1, 5),)


def test_damaged_file_raises() -> None:
    files = SimFiles(["/log"])
    files.open_append("/log/leader-epoch-checkpoint").append(b"0\n1\n-1 5\n")
    with pytest.raises(CorruptCheckpoint):
        LeaderEpochs.load(files, "/log")
