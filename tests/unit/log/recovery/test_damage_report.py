"""Reports of missing and contradictory files at startup: offsets, file, remedy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from plogd.log import file_names
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets, batch_offsets, four_segments


def without(lost: list[int], *, clean: bool, knows_start: bool = True) -> LogSite:
    """Restart a log of four segments without the records of some of them."""
    site, log = four_segments()
    site.write_checkpoints()
    if knows_start:
        site.settle(site.manager.write_log_starts())
    if clean:
        site.stop()
    for base in lost:
        site.files.unlink(site.path(log, base))
    return site.kill()


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize(
    ("lost", "first", "last", "consequence"),
    [
        ([0], 0, 4, "the log starts after them"),
        ([0, 5], 0, 9, "the log starts after them"),
        ([5], 5, 9, "consumers continue after them"),
        ([5, 10], 5, 14, "consumers continue after them"),
        ([10], 10, 14, "consumers continue after them"),
        ([15], 15, 16, "the log continues after them"),
    ],
)
def test_removed_log_file_is_reported_with_its_offsets(
    lost: list[int], first: int, last: int, consequence: str, clean: bool
) -> None:
    site = without(lost, clean=clean)
    [line] = [line for line in site.reports if "lost" in line]
    assert f"t-0 has lost offsets {first} to {last}, which were durable" in line
    assert "a file in /a/t-0 was truncated or removed" in line
    assert consequence in line
    assert "restore the file from a backup" in line
    gone = [number for base in lost for number in range(base, min(base + 5, 17))]
    left = [number for number in range(17) if number not in gone]
    assert batch_offsets(site.log(), site.log().log_start_offset) == left
    site.append(site.log())
    assert site.log().log_end_offset == 18


def test_unknown_log_start_is_not_reported_as_loss() -> None:
    """The checkpoint has no entry: data of Kafka's, or a damaged checkpoint."""
    site = without([0], clean=False, knows_start=False)
    assert site.reports == []
    assert site.log().log_start_offset == 5


def test_gaps_in_compacted_logs_are_not_reported() -> None:
    site, log = four_segments()
    site.write_checkpoints()
    site.files.unlink(site.path(log, 5))
    after = site.next_life()
    key = log.topic_partition
    compacted = replace(CONFIG, cleanup_policy=("compact",))
    after.topics[key] = (after.topics[key][0], compacted)
    after.start()
    assert after.reports == []


def test_records_deleted_by_retention_are_not_reported() -> None:
    site, log = four_segments()
    log.delete_records_before(12)
    site.settle()
    site.ports.advance(2000)
    assert site.listing(log) == [10, 15]
    for clean in (False, True):
        site = site.restart() if clean else site.kill()
        assert not any("lost" in line for line in site.reports)


@pytest.mark.parametrize("start", [18, 10**6])
@pytest.mark.parametrize("clean", [True, False])
def test_log_start_beyond_the_end_is_reported_and_files_are_kept(start: int, clean: bool) -> None:
    """The file has no checksum: one wrong digit must not lose all records."""
    site, log = four_segments()
    if clean:
        site.stop()
    before = {base: site.files.read_file(site.path(log, base)) for base in (0, 5, 10, 15)}
    site.forget(file_names.LOG_START_OFFSET_CHECKPOINT)
    path = f"/a/{file_names.LOG_START_OFFSET_CHECKPOINT}"
    file = site.files.open_append(path)
    file.append(b"0\n1\nt 0 %d\n" % start)
    file.close()
    site = site.kill()
    log = site.log()
    line = next(line for line in site.reports if "log-start-offset-checkpoint" in line)
    assert f"t-0 ends at 17, but log-start-offset-checkpoint says that it starts at {start}" in line
    assert "/a/t-0" in line
    assert "*.stray" in line
    assert (log.log_start_offset, log.log_end_offset) == (start, start)
    assert base_offsets(log) == [start]
    for base, content in before.items():
        assert site.files.read_file(site.path(log, base) + file_names.STRAY_SUFFIX) == content
    site.append(log)
    site.settle()
    again = site.kill()
    assert batch_offsets(again.log()) == [start]
    assert not any("log-start-offset-checkpoint" in line for line in again.reports)
    for base, content in before.items():
        assert again.files.read_file(site.path(log, base) + file_names.STRAY_SUFFIX) == content


def test_reported_remedy_restores_the_records() -> None:
    site, log = four_segments()
    site.stop()
    path = f"/a/{file_names.LOG_START_OFFSET_CHECKPOINT}"
    right = site.files.read_file(path)
    site.files.overwrite(path, b"0\n1\nt 0 99\n")
    site = site.kill()
    directory = log.directory
    site.stop()
    for name in site.files.listdir(directory):
        if name.endswith(file_names.STRAY_SUFFIX):
            plain = name.removesuffix(file_names.STRAY_SUFFIX)
            site.files.rename(f"{directory}/{name}", f"{directory}/{plain}")
        elif name.startswith(f"{99:020}"):
            site.files.unlink(f"{directory}/{name}")
    site.files.overwrite(path, right)
    site = site.kill()
    assert batch_offsets(site.log()) == list(range(17))
