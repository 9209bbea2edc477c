"""The mark of lost records: its format, and what a crash or a damaged file leaves."""

from __future__ import annotations

import pytest

from plogd.log import file_names
from plogd.log.log_loss import LogLoss, LossMark, read_loss, write_first_loss, write_loss
from tests.helpers.sim.sim_files import SimFiles

LOSS = LogLoss(first_offset=7, lacks_end=False)
PATH = f"/p/{file_names.LOST_RECORDS}"


@pytest.mark.parametrize("lacks_end", [True, False])
def test_mark_is_read_as_it_was_written(lacks_end: bool) -> None:
    files, loss = SimFiles(["/p"]), LogLoss(first_offset=7, lacks_end=lacks_end)
    assert read_loss(files, "/p") is None
    write_loss(files, "/p", loss)
    assert read_loss(files, "/p") == loss
    assert files.read_file(PATH) == (
        b"version: 0\nfirst_offset: 7\nlacks_end: " + (b"true\n" if lacks_end else b"false\n")
    )


def test_mark_in_a_new_directory_is_the_same() -> None:
    files = SimFiles(["/p", "/q"])
    write_loss(files, "/p", LOSS)
    write_first_loss(files, "/q", LOSS, sync=True)
    assert files.read_file(f"/q/{file_names.LOST_RECORDS}") == files.read_file(PATH)


def test_mark_that_was_cut_at_any_byte_never_understates_the_loss() -> None:
    files = SimFiles(["/p"])
    write_loss(files, "/p", LOSS)
    data = files.read_file(PATH)
    for size in range(len(data) - 1):
        files.overwrite(PATH, data[:size])
        loss = read_loss(files, "/p")
        assert loss is not None
        assert (loss.first_offset, loss.lacks_end) in [(0, True), (7, True)]


def test_losses_are_added_and_not_repeated() -> None:
    files = SimFiles(["/p"])
    mark = LossMark(files, "/p", is_kept=True)
    mark.note(LOSS)
    operations = files.operations
    mark.note(LogLoss(first_offset=9, lacks_end=False))
    assert files.operations == operations
    mark.note(LogLoss(first_offset=9, lacks_end=True))
    assert mark.loss == LogLoss(first_offset=7, lacks_end=True)
    assert LossMark(files, "/p", is_kept=True).loss == mark.loss


def test_partition_without_other_replicas_gets_no_mark_but_keeps_an_earlier_one() -> None:
    files = SimFiles(["/p", "/q"])
    write_loss(files, "/p", LOSS)
    for directory, expected in (("/p", LOSS), ("/q", None)):
        mark = LossMark(files, directory, is_kept=False)
        mark.note(LogLoss(first_offset=1, lacks_end=True))
        assert mark.loss == expected
        assert read_loss(files, directory) == expected


def test_losses_are_merged() -> None:
    assert LOSS.merged(None) == LOSS
    assert LOSS.merged(LogLoss(first_offset=1, lacks_end=True)) == LogLoss(
        first_offset=1, lacks_end=True
    )
