"""The topic of a partition's directory: by its topic id, otherwise by its name."""

from __future__ import annotations

import pytest

from plog.types import ZERO_UUID
from plogd.log import file_names
from plogd.log.disk.checkpoint_files import write_topic_id
from plogd.log.recovery.log_discovery import topic_id_of
from tests.helpers.log.log_site import LogSite, batch_offsets, four_segments
from tests.helpers.sim.sim_files import SimFiles


def test_partition_metadata_determines_the_topic_of_a_directory() -> None:
    files = SimFiles(["/a/t-0"])
    assert topic_id_of(files, "/a/t-0") is None
    write_topic_id(files, "/a/t-0", b"\1" * 16)
    assert topic_id_of(files, "/a/t-0") == b"\1" * 16
    files.overwrite(f"/a/t-0/{file_names.PARTITION_METADATA}", b"version: 0\n")
    assert topic_id_of(files, "/a/t-0") is None


@pytest.mark.parametrize("damage", [None, b"", b"version: 0\n", b"\0" * 50])
def test_log_without_topic_id_is_assigned_by_name(damage: bytes | None) -> None:
    """Renamed, its records would seem to be missing."""
    site, log = four_segments()
    path = f"{log.directory}/{file_names.PARTITION_METADATA}"
    if damage is None:
        site.files.unlink(path)
    else:
        site.files.overwrite(path, damage)
    site = site.kill()
    assert batch_offsets(site.log()) == list(range(17))
    [report] = site.reports
    assert "/a/t-0: wrote a new file, which assigns the directory" in report
    assert topic_id_of(site.files, "/a/t-0") == site.topics[log.topic_partition][0]
    assert site.kill().reports == []


@pytest.mark.parametrize("with_id", ["/a", "/b"])
def test_log_with_topic_id_takes_precedence_over_one_without(with_id: str) -> None:
    """An interrupted creation has left a directory, and another one was created elsewhere."""
    site = LogSite(("/a", "/b")).start()
    log = site.create("t-0")
    site.fill(log, 3)
    site.settle()
    other = "/b" if log.log_dir == "/a" else "/a"
    site.files.mkdir(f"{other}/t-0")
    if log.log_dir != with_id:
        site.log_dirs = tuple(reversed(site.log_dirs))
    site = site.kill()
    assert site.log().log_dir == log.log_dir
    assert batch_offsets(site.log()) == list(range(3))
    assert "topic id is unreadable" in site.reports[0]


@pytest.mark.parametrize("has_id", [False, True])
def test_log_of_topic_whose_id_is_unknown_is_neither_moved_nor_assigned(has_id: bool) -> None:
    """The metadata of the topic is damaged, so any directory with its name may be its own."""
    site, log = four_segments()
    topic_id, config = site.topics[log.topic_partition]
    path = f"{log.directory}/{file_names.PARTITION_METADATA}"
    if not has_id:
        site.files.unlink(path)
    site.topics[log.topic_partition] = (ZERO_UUID, config)
    site = site.kill()
    if has_id:
        assert site.log().topic_id == topic_id
        assert batch_offsets(site.log()) == list(range(17))
    else:
        assert log.topic_partition not in site.manager.logs
    assert site.files.exists(f"{log.directory}/{'0' * 20}.log")
    assert site.files.exists(path) == has_id
    assert site.reports == []
