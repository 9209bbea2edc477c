"""A rejected segment keeps its bytes under a name of its own."""

from __future__ import annotations

from plogd.log import file_names
from plogd.log.recovery.stray_segments import mark_stray
from plogd.log.segment.log_segment import LogSegment
from tests.helpers.log.log_data import SMALL, fill
from tests.helpers.sim.sim_files import SimFiles


def test_segments_of_one_offset_get_different_names() -> None:
    files = SimFiles(["/log"])
    contents = []
    for batches in (3, 2, 1):
        segment = LogSegment.create(files, "/log", 5, SMALL)
        fill(segment, batches)
        segment.on_become_inactive()
        contents.append(files.read_file(f"/log/{5:020}.log"))
        mark_stray(files, segment)
    for state, content in zip(("", ".2", ".3"), contents, strict=True):
        assert files.read_file(f"/log/{5:020}.log{state}.stray") == content
        assert files.exists(f"/log/{5:020}.index{state}.stray")


def test_startup_ignores_stray_files() -> None:
    for number in (1, 2, 10):
        for suffix in file_names.SEGMENT_SUFFIXES:
            name = file_names.segment_file_name(5, suffix, file_names.stray_state(number))
            assert name.endswith(".stray")
            assert file_names.parse_segment_file_name(name) is None
