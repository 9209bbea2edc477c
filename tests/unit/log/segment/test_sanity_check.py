"""The check of the indexes of a segment that is loaded without recovery."""

from __future__ import annotations

import pytest

from plogd.log.segment.index_file import CorruptIndex
from plogd.log.segment.sanity_check import sanity_check
from tests.helpers.log.log_data import append, client_batch, fill
from tests.helpers.log.one_segment import BASE, INDEX, TIME_INDEX, create_segment, open_segment
from tests.helpers.sim.sim_files import SimFiles


def test_valid_segment_passes_the_sanity_check() -> None:
    files = SimFiles()
    segment = create_segment(files)
    sanity_check(open_segment(files))
    fill(segment, 40)
    segment.on_become_inactive()
    sanity_check(open_segment(files))


@pytest.mark.parametrize("path", [INDEX, TIME_INDEX])
@pytest.mark.parametrize("damage", ["missing", "zeros", "garbage", "over-long", "ragged"])
def test_damaged_index_fails_the_sanity_check(path: str, damage: str) -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40)
    segment.on_become_inactive()
    segment.close()
    content = files.read_file(path)
    if damage == "missing":
        files.unlink(path)
    else:
        damaged = {
            "zeros": bytes(len(content)),
            "garbage": b"\x5a" * len(content),
            "over-long": content + bytes(24),
            "ragged": content + b"\0",
        }
        files.overwrite(path, damaged[damage])
    with pytest.raises(CorruptIndex):
        sanity_check(open_segment(files))


def test_damage_after_the_last_index_entry_fails_the_sanity_check() -> None:
    files = SimFiles()
    segment = create_segment(files)
    fill(segment, 40)
    segment.on_become_inactive()
    path = segment.records_file.path
    files.overwrite(path, files.read_file(path)[:-50] + bytes(50 + 100))
    with pytest.raises(CorruptIndex, match="damage"):
        sanity_check(open_segment(files))


def test_index_that_ends_long_before_the_log_fails_the_sanity_check() -> None:
    files = SimFiles()
    segment = create_segment(files)
    offset = append(segment, client_batch(value=b"v" * (9 << 20)), BASE)
    append(segment, client_batch(value=b"v" * (9 << 20)), offset)
    segment.on_become_inactive()
    segment.close()
    sanity_check(open_segment(files))
    files.overwrite(INDEX, b"")
    with pytest.raises(CorruptIndex, match="does not cover the last part"):
        sanity_check(open_segment(files))


def test_time_index_without_its_last_entry_fails_the_sanity_check() -> None:
    """Retention would consider the segment older than it is."""
    files = SimFiles()
    fill(create_segment(files), 40)
    with pytest.raises(CorruptIndex, match="last entry"):
        sanity_check(open_segment(files))
