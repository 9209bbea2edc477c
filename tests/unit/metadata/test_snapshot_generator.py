"""When snapshots are written, what they replace, and what a failed or interrupted one leaves."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from plog.errors import KafkaStorageError
from plog.wire.internal.metadata_records import MetadataRecord
from plogd.fair_queue import SLICE, FairQueue
from plogd.log.disk.reserved_space import RECORDS_BYTES
from plogd.metadata.record_batch import batch_of
from plogd.metadata.snapshot_name import SnapshotName
from plogd.metadata.snapshot_writer import SnapshotWriter
from plogd.ports import Later
from tests.helpers.log.metadata_site import DIRECTORY, MetadataSite, Values, topic_changes
from tests.helpers.sim.sim_files import SimCrash, SimFiles
from tests.unit.metadata.test_embedded_store import producer_ids

HOUR_MS, MINUTE_MS = 3_600_000, 60_000
SMALL = 400
"""Bytes between snapshots: every few changes."""
EVERY_CHANGE = 1


def fill(site: MetadataSite, count: int = 12) -> None:
    """Create topics, change them, and delete every third one."""
    for number in range(count):
        site.create(f"t{number}", 1 + number % 3)
        site.configure(f"t{number}", **{"retention.ms": str(number)})
        if number % 3 == 0:
            site.delete(f"t{number}")


class TestWhen:
    """A snapshot is due after a number of bytes, or after a time."""

    def test_snapshot_follows_a_number_of_bytes(self) -> None:
        site = MetadataSite(max_bytes=SMALL)
        site.start()
        size = site.log.size_bytes
        while site.log.size_bytes < SMALL:
            assert site.snapshots == []
            site.configure("t", a=str(site.log.size_bytes))
        assert size < SMALL
        assert site.snapshots == [SnapshotName(end_offset=site.log.log_end_offset, epoch=0)]

    def test_bytes_are_counted_across_restarts(self) -> None:
        site = MetadataSite(max_bytes=1000)
        site.start()
        starts = 1
        while not site.snapshots:
            site.restart()
            starts += 1
        # A registration takes about 130 bytes, and none of them alone is enough.
        assert 4 < starts < 12
        [name] = site.snapshots
        assert name.epoch == starts - 1

    def test_snapshot_follows_a_time_if_anything_has_changed(self) -> None:
        site = MetadataSite(interval_ms=HOUR_MS)
        site.start()
        site.create("t")
        site.ports.advance(HOUR_MS - 1)
        assert site.snapshots == []
        site.ports.advance(1)
        [first] = site.snapshots
        site.ports.advance(10 * HOUR_MS)
        assert site.snapshots == [first]
        site.create("u")
        [_, second] = site.snapshots
        assert second.end_offset == site.log.log_end_offset

    def test_interval_of_zero_means_never(self) -> None:
        site = MetadataSite(interval_ms=0)
        site.start()
        site.create("t")
        site.ports.advance(1000 * HOUR_MS)
        assert site.snapshots == []

    def test_many_bytes_do_not_wait_for_the_interval(self) -> None:
        site = MetadataSite(max_bytes=SMALL, interval_ms=HOUR_MS)
        site.start()
        fill(site)
        assert len(site.snapshots) == 2

    def test_snapshot_waits_for_the_batch_in_flight(self) -> None:
        site = MetadataSite(interval_ms=HOUR_MS)
        site.start()
        site.create("t")
        site.ports.clock.advance_to(site.ports.clock.monotonic_ms() + HOUR_MS - 1)
        writing = site.store.write_atomic(topic_changes("u"))
        site.ports.timers.run_due()
        assert not writing.done
        # The interval ends now, and the free space is checked, but the image lacks the batch.
        site.ports.advance(1)
        [name] = site.snapshots
        assert name.end_offset == site.log.log_end_offset
        before = site.values
        site.restart()
        assert set(before) <= set(site.values)

    def test_no_snapshot_begins_after_a_stop(self) -> None:
        site = MetadataSite(max_bytes=EVERY_CHANGE)
        site.start()
        site.settle(site.metadata.stop())
        found = site.snapshots
        site.create("t")
        site.ports.advance(HOUR_MS)
        assert site.snapshots == found


class TestContent:
    """A start from a snapshot and from the log leads to the same metadata."""

    def test_start_reads_the_snapshot_and_only_the_records_after_it(self) -> None:
        site = MetadataSite(max_bytes=SMALL)
        site.start()
        fill(site)
        expected = site.values
        files = site.files.kill()
        site.start(files, registers=False)
        assert site.values == expected
        [older, newest] = site.snapshots
        for path in (site.path(older), f"{DIRECTORY}/{older.end_offset:020}.log"):
            site.files.overwrite(path, b"not read")
        site.store.open(site.ports.bundle().files, site.ports.report)
        assert site.values == expected
        loaded = f"loaded metadata snapshot {newest.file_name} and "
        assert [text for text in site.ports.reports if text.startswith(loaded)]
        assert not any("cannot use" in text for text in site.ports.reports)
        site.files.overwrite(site.path(newest), b"read")
        with pytest.raises(KafkaStorageError, match="no snapshot can be used"):
            site.store.open(site.ports.bundle().files)

    def test_leader_epochs_and_broker_epochs_keep_rising(self) -> None:
        site = MetadataSite(max_bytes=EVERY_CHANGE)
        site.start()
        site.create("t", 2)
        broker_epochs, log_epochs = [], []
        for starts in range(6):
            assert site.store.get(("partition", "t", 1))[0].leader_epoch == starts
            assert site.store.get(("partition", "t", 1))[0].partition_epoch == starts
            value, version = site.store.get(("broker", 1))
            assert value.broker_epoch == version
            broker_epochs.append(value.broker_epoch)
            log_epochs.append(site.store.quorum.leader_epoch)
            assert site.log.leader_epochs.latest_epoch == site.store.quorum.leader_epoch
            site.restart()
        assert site.log.log_start_offset > broker_epochs[0]
        assert sorted(set(broker_epochs)) == broker_epochs
        assert log_epochs == list(range(6))

    def test_epoch_of_the_log_rises_even_if_the_log_has_no_records(self) -> None:
        site = MetadataSite(max_bytes=EVERY_CHANGE)
        site.start()
        site.restart()
        site.restart()
        name = site.snapshots[-1]
        assert name.epoch == 2
        site.settle(site.log.truncate_fully(name.end_offset))
        site.stop()
        site.start(site.files.kill(), registers=False)
        assert site.log.leader_epochs.latest_epoch == -1
        assert site.store.quorum.leader_epoch == 3

    def test_versions_after_a_snapshot_are_below_those_of_later_changes(self) -> None:
        site = MetadataSite(max_bytes=EVERY_CHANGE)
        site.start()
        site.create("t")
        name = site.snapshots[-1]
        files = site.files.kill()
        site.start(files, registers=False)
        _, version = site.store.get(("topic", "t"))
        assert version == name.end_offset - 1
        [written] = site.settle(site.store.write([producer_ids(1000, -1)]))
        assert written.version > version
        # The version that was read is the one that a change expects.
        site.delete("t")
        assert ("topic", "t") not in site.values

    def test_changes_during_the_writing_are_not_in_the_snapshot(self) -> None:
        site = MetadataSite(max_bytes=EVERY_CHANGE)
        site.start()
        site.store.write_atomic(topic_changes("t", 2 * SLICE))
        while not site.parts:
            assert site.ports.timers.run_due() or site.ports.jobs.run_all()
        site.create("u")
        site.delete("t")
        site.ports.settle()
        expected = site.values
        assert ("topic", "t") not in expected
        site.start(site.files.kill(), registers=False)
        assert site.values == expected

    def test_large_image_is_encoded_in_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        site = MetadataSite(interval_ms=HOUR_MS)
        site.start()
        site.create("t", 20 * SLICE)
        events: list[object] = []

        def turn(self: FairQueue) -> Later[None]:
            events.append("turn")
            return wait_for_turn(self)

        def encode(records: Sequence[MetadataRecord], now_ms: int) -> bytearray:
            events.append(len(records))
            return batch_of(records, now_ms)

        wait_for_turn = FairQueue.turn
        monkeypatch.setattr(FairQueue, "turn", turn)
        monkeypatch.setattr("plogd.metadata.snapshot_writer.batch_of", encode)
        site.ports.advance(HOUR_MS)
        # 20 slices of partitions, and the records of the level, the broker and the topic.
        assert events == ["turn", SLICE] * 20 + ["turn", 3, "turn"]


def test_gauges_show_the_size_and_the_age_of_the_newest_snapshot() -> None:
    site = MetadataSite(max_bytes=SMALL)
    site.start()

    def shown(name: str) -> float:
        prefix = f"kafka_server_snapshotemitter_latestsnapshotgenerated{name} "
        [line] = [x for x in site.metrics.lines() if x.startswith(prefix)]
        return float(line.split()[1])

    assert shown("bytes") == 0
    fill(site)
    size = len(site.files.read_file(site.path(site.snapshots[-1])))
    assert shown("bytes") == size
    age_ms = shown("agems")
    site.ports.advance(MINUTE_MS)
    assert shown("agems") == age_ms + MINUTE_MS
    site.restart()
    assert shown("bytes") == len(site.files.read_file(site.path(site.snapshots[-1])))


class TestDeletion:
    """The two newest snapshots are kept, and the log since the older one."""

    def test_log_begins_at_the_older_of_two_snapshots(self) -> None:
        site = MetadataSite(max_bytes=SMALL)
        site.start()
        fill(site)
        site.ports.advance(MINUTE_MS)
        [older, newest] = site.snapshots
        assert older.end_offset < newest.end_offset
        assert site.log.log_start_offset == older.end_offset
        names = [name for name in site.files.listdir(DIRECTORY) if name.endswith(".log")]
        assert names[0] == f"{older.end_offset:020}.log"
        assert f"{newest.end_offset:020}.log" in names
        assert not [name for name in site.files.listdir(DIRECTORY) if ".deleted" in name]

    def test_first_snapshot_deletes_nothing(self) -> None:
        site = MetadataSite(interval_ms=HOUR_MS)
        site.start()
        site.ports.advance(HOUR_MS)
        assert len(site.snapshots) == 1
        assert site.log.log_start_offset == 0
        assert f"{0:020}.log" in site.files.listdir(DIRECTORY)

    def test_metadata_stays_small_for_years(self) -> None:
        site = MetadataSite(max_bytes=2_000)
        site.start()
        sizes = set()
        for number in range(400):
            site.create("t")
            site.delete("t")
            if number % 20 == 0:
                site.ports.advance(MINUTE_MS)
                sizes.add(site.log.size_bytes)
        assert max(sizes) < 10_000
        assert len(site.files.listdir(DIRECTORY)) < 30

    def test_new_segment_gets_the_reserved_space(self) -> None:
        site = MetadataSite(interval_ms=HOUR_MS)
        site.start()
        site.ports.advance(HOUR_MS)
        path = site.log.segments.active.records_file.path
        assert path.endswith(f"{site.snapshots[0].end_offset:020}.log")
        assert site.files.reserved_bytes(path) >= RECORDS_BYTES


class TestCrashes:
    """After a crash at any file operation, the next start has the same metadata."""

    @pytest.mark.parametrize("lives", [2, pytest.param(5, marks=pytest.mark.long)])
    @pytest.mark.parametrize("how", ["power loss", "kill"])
    def test_metadata_survives_a_crash_at_any_file_operation(self, how: str, lives: int) -> None:
        chance = random.Random(how)
        number = 0
        while True:
            number += 1
            site, known = MetadataSite(max_bytes=SMALL), list[Values]()
            try:
                run_history(site, known, lives, crash_at=number)
            except SimCrash:
                pass  # Expected here; its remains are checked below.
            else:
                break
            files = site.files
            survivor = files.crash(chance) if how == "power loss" else files.kill()
            check_survivor(site, survivor, known, number)
        assert number > 100
        assert len(site.snapshots) == 2
        assert site.log.log_start_offset > 0

    def test_snapshot_that_is_not_synced_loses_metadata(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The test above finds records that are deleted before a snapshot is durable."""

        def complete(self: SnapshotWriter) -> None:
            self._close()
            self._files.rename(self._part_path, self._path)
            self._files.sync_dir(self._directory)

        monkeypatch.setattr(SnapshotWriter, "_complete", complete)
        with pytest.raises(KafkaStorageError, match="no snapshot can be used"):
            self.test_metadata_survives_a_crash_at_any_file_operation("power loss", 2)


def run_history(site: MetadataSite, known: list[Values], lives: int, *, crash_at: int) -> None:
    """Change metadata and restart; add the state after each step to `known`."""
    for life in range(lives):
        files = site.files.kill() if life else site.files
        files.crash_at(crash_at)
        site.start(files)
        known.append(site.values)
        for number in range(3):
            name = f"t{life}-{number}"
            site.create(name, 2)
            known.append(site.values)
            if number % 2:
                site.delete(name)
                known.append(site.values)
        site.ports.advance(1)
        crash_at -= site.files.operations


def check_survivor(
    site: MetadataSite, survivor: SimFiles, known: list[Values], number: int
) -> None:
    """Start on the remains; the metadata must be at least that of the last known state."""
    site.start(survivor)
    found = topics(site.values)
    last = topics(known[-1]) if known else set()
    # The change in progress may be on disk or not: one topic more or fewer.
    assert len(found ^ last) <= 1, number
    for key, value in site.values.items():
        if key[0] == "partition" and known and key in known[-1]:
            assert value.leader_epoch > known[-1][key].leader_epoch, number
    site.create("new")
    before = site.values
    site.start(site.files.kill(), registers=False)
    assert site.values == before, number


def topics(values: Values) -> set[object]:
    """Return the names of the topics, all of whose partitions must exist."""
    names = {key[1] for key in values if key[0] == "topic"}
    partitions = [key[1] for key in values if key[0] == "partition"]
    assert sorted(partitions) == sorted([*names, *(name for name in names if name != "new")])
    return names
