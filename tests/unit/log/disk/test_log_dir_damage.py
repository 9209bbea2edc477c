"""F6: every small file of a log directory truncated, zeroed or garbled at every byte.

A checkpoint that cannot be read is reported and treated as missing; no record is lost. The identity
of a directory is never guessed.
"""

from __future__ import annotations

import random

import pytest

from plogd.log import file_names
from plogd.log.disk.log_dir import LogDirUnusable
from tests.helpers.log.log_site import LogSite, batch_offsets, four_segments
from tests.helpers.sim.sim_files import SimFiles

NOISE = random.Random(2).randbytes(4096)
CHECKPOINTS = [
    file_names.RECOVERY_POINT_CHECKPOINT,
    file_names.HIGH_WATERMARK_CHECKPOINT,
    file_names.LOG_START_OFFSET_CHECKPOINT,
]


def stopped(clean: bool) -> tuple[LogSite, dict[str, bytes]]:
    """A site with all files written, and its files."""
    site, _ = four_segments()
    site.write_checkpoints()
    site.settle(site.manager.write_log_starts())
    if clean:
        site.stop()
    contents = {
        f"{directory}/{name}": site.files.read_file(f"{directory}/{name}")
        for directory in ("/a", "/a/t-0")
        for name in site.files.listdir(directory)
        if not site.files.is_dir(f"{directory}/{name}")
    }
    return site, contents


def next_site(site: LogSite, contents: dict[str, bytes]) -> LogSite:
    """Restart over these files."""
    files = SimFiles(["/a/t-0"])
    for path, content in contents.items():
        file = files.open_append(path)
        file.append(content)
        file.close()
    return site._successor(files)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("name", CHECKPOINTS)
def test_checkpoint_damaged_from_any_byte_on_loses_no_record(name: str, clean: bool) -> None:
    site, contents = stopped(clean)
    path = f"/a/{name}"
    original = contents[path]
    for position in range(len(original)):
        rest = len(original) - position
        for damaged in (original[:position], original[:position] + bytes(rest)):
            after = next_site(site, {**contents, path: damaged}).start()
            assert batch_offsets(after.log()) == list(range(17)), (position, damaged)
            assert after.log().log_start_offset == 0
            assert any(path in line for line in after.reports), (position, damaged)
            after.append(after.log())
            assert after.log().log_end_offset == 18


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_broker_starts_with_a_garbled_checkpoint(name: str) -> None:
    """A wrong digit may be accepted; its effects are reported."""
    site, contents = stopped(clean=False)
    path = f"/a/{name}"
    original = contents[path]
    digits = [b"0", b"9", b"-"]
    for position in range(len(original)):
        for byte in (*digits, NOISE[position : position + 1]):
            garbled = original[:position] + byte + original[position + 1 :]
            after = next_site(site, {**contents, path: garbled}).start()
            log = after.log()
            end = log.log_end_offset
            assert end >= 17
            if end > 17 or log.log_start_offset > 0:
                assert log.log_start_offset <= 17 or after.reports
                assert end == 17 or after.reports
            after.append(log)
            assert log.log_end_offset == end + 1
            assert after.offline == []


def test_identity_damaged_from_any_byte_on_refuses_the_start_or_is_right() -> None:
    site, contents = stopped(clean=True)
    path = f"/a/{file_names.META_PROPERTIES}"
    original = contents[path]
    for position in range(len(original)):
        rest = len(original) - position
        for damaged in (original[:position], original[:position] + bytes(rest)):
            after = next_site(site, {**contents, path: damaged})
            problem = ""
            try:
                after.start()
            except LogDirUnusable as error:
                problem = str(error)
            if problem:
                assert path in problem
                assert "restore the file from another log directory" in problem
            else:
                assert after.manager.cluster_id == site.manager.cluster_id


def test_directory_with_damaged_topic_id_is_assigned_by_name() -> None:
    site, contents = stopped(clean=True)
    path = f"/a/t-0/{file_names.PARTITION_METADATA}"
    original = contents[path]
    for position in range(len(original)):
        rest = len(original) - position
        for damaged in (original[:position], original[:position] + bytes(rest)):
            after = next_site(site, {**contents, path: damaged}).start()
            assert batch_offsets(after.log()) == list(range(17))
            assert after.files.read_file(path) == original
