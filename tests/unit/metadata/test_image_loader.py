"""Which snapshot a start uses, and what it reports if one cannot be used."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from plog.errors import KafkaStorageError
from plogd.metadata.snapshot_name import SnapshotName
from tests.helpers.log.metadata_site import DIRECTORY, MetadataSite

EVERY_CHANGE = 1


def damage_byte(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "one bit": damage_byte,
    "empty": lambda content: b"",
    "zeros": lambda content: bytes(len(content)),
    "no footer": lambda content: content[:-80],
    "cut": lambda content: content[:-1],
    "cut at the beginning": lambda content: content[1:],
}
damages = pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)


def site_with_snapshots(count: int) -> MetadataSite:
    """Return a running site with topics, which has written `count` snapshots."""
    site = MetadataSite(max_bytes=EVERY_CHANGE)
    site.start()  # Its registration is in the first snapshot.
    for number in range(count - 1):
        site.create(f"t{number}")
    site.ports.advance(60_000)
    assert len(site.snapshots) == min(count, 2)
    return site


def overwrite(site: MetadataSite, name: SnapshotName, damage: Callable[[bytes], bytes]) -> None:
    content = site.files.read_file(site.path(name))
    assert damage(content) != content
    site.files.overwrite(site.path(name), damage(content))


@damages
def test_damaged_snapshot_is_replaced_by_the_older_one(damage: Callable[[bytes], bytes]) -> None:
    site = site_with_snapshots(4)
    older, newest = site.snapshots
    expected = site.values
    overwrite(site, newest, damage)
    site.start(site.files.kill(), registers=False)
    assert site.values == expected
    [report, _] = [text for text in site.ports.reports if "snapshot" in text]
    assert report.startswith(f"cannot use a metadata snapshot: {site.path(newest)}: ")
    assert f"loaded {older.file_name} and the later records" in report
    # The next snapshots keep the usable one, and remove the damaged one.
    site.create("new")
    names = site.snapshots
    assert (names[0], len(names)) == (older, 2)
    assert site.log.log_start_offset == older.end_offset
    site.create("newer")
    assert older not in site.snapshots
    expected = site.values
    site.start(site.files.kill(), registers=False)
    assert site.values == expected
    assert not any("cannot use" in text for text in site.ports.reports)


@damages
def test_damaged_first_snapshot_is_replaced_by_the_log(damage: Callable[[bytes], bytes]) -> None:
    site = site_with_snapshots(1)
    [name] = site.snapshots
    site.settle(site.metadata.stop())
    site.create("t")
    expected = site.values
    overwrite(site, name, damage)
    site.start(site.files.kill(), registers=False)
    assert site.values == expected
    assert any("loaded all records of the log" in text for text in site.ports.reports)


def test_unreadable_snapshot_is_replaced_by_the_older_one() -> None:
    site = site_with_snapshots(4)
    newest = site.path(site.snapshots[-1])
    expected = site.values
    files = site.files.kill()
    files.fail_when(lambda op: op.path == newest and op.name in ("pread", "open"), errno.EIO)
    site.start(files, registers=False)
    assert site.values == expected
    assert any("Input/output error" in text for text in site.ports.reports)


def test_start_fails_if_no_snapshot_can_be_used() -> None:
    site = site_with_snapshots(4)
    for name in site.snapshots:
        overwrite(site, name, DAMAGE["cut"])
    files = site.files.kill()
    with pytest.raises(KafkaStorageError) as raised:
        site.start(files)
    text = str(raised.value)
    assert text.startswith(f"cannot load the metadata in {DIRECTORY}: the records below offset ")
    for name in site.snapshots:
        assert site.path(name) in text
    assert text.endswith("; restore the files of this directory from a backup")


def test_start_fails_if_the_snapshots_are_missing() -> None:
    site = site_with_snapshots(4)
    for name in site.snapshots:
        site.files.unlink(site.path(name))
    files = site.files.kill()
    with pytest.raises(KafkaStorageError, match=r"used: there is no \.checkpoint file; restore"):
        site.start(files)


def test_start_fails_if_records_after_the_snapshot_are_missing() -> None:
    site = site_with_snapshots(4)
    site.settle(site.metadata.stop())
    newest = site.snapshots[-1]
    site.create("more")
    site.log.roll()
    site.create("even more")
    site.ports.settle()
    [lost] = [
        name for name in site.files.listdir(DIRECTORY) if name == f"{newest.end_offset:020}.log"
    ]
    site.files.unlink(f"{DIRECTORY}/{lost}")
    files = site.files.kill()
    with pytest.raises(KafkaStorageError, match="records are missing at offset"):
        site.start(files)


def test_start_fails_if_the_log_ends_before_the_snapshot() -> None:
    site = site_with_snapshots(4)
    newest = site.snapshots[-1]
    beyond = SnapshotName(newest.end_offset + 100, newest.epoch)
    site.files.rename(site.path(newest), site.path(beyond))
    files = site.files.kill()
    with pytest.raises(KafkaStorageError, match=f"{beyond.file_name} replaces the records below"):
        site.start(files)


def test_damage_in_records_that_a_snapshot_replaces_does_not_matter() -> None:
    site = site_with_snapshots(4)
    older, newest = site.snapshots
    expected = site.values
    path = f"{DIRECTORY}/{older.end_offset:020}.log"
    content = site.files.read_file(path)
    assert content
    site.files.overwrite(path, damage_byte(content))
    site.start(site.files.kill(), registers=False)
    assert site.values == expected
    assert newest in site.snapshots


def test_snapshot_that_kafka_writes_when_it_formats_a_directory_is_ignored() -> None:
    site = MetadataSite()
    site.start()
    site.files.open_append(site.path(SnapshotName(0, 0))).append(b"x")
    site.restart()
    assert not any("cannot use" in text for text in site.ports.reports)
