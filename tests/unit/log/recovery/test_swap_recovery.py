"""A startup completes the swaps of compacted segments, also those that Kafka has left."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

import pytest

from plogd.log.file_names import DELETED_SUFFIX, SWAP_SUFFIX
from plogd.log.log import Log
from tests.helpers.log.compaction_site import (
    COMPACT,
    Stored,
    compact,
    end_transaction,
    latest,
    put,
    stored,
    unfinished_files,
)
from tests.helpers.log.log_site import LogSite, base_offsets
from tests.helpers.sim.sim_files import SimCrash

Contents = Mapping[str, bytes]
DIRECTORY = "/a/t-0"
SEGMENT = (".log", ".index", ".timeindex", ".txnindex")


def _new_site() -> tuple[LogSite, Log]:
    """Return a log with two segments to compact, of which the first has aborted records."""
    site = LogSite().start()
    log = site.create("t-0", COMPACT)
    producer = dict(producer_id=5, producer_epoch=0, is_transactional=True)
    put(site, log, b"a", b"aborted", base_sequence=0, **producer)
    end_transaction(site, log, 5, commit=False)
    for number in range(14):
        put(site, log, b"k%d" % (number % 2), b"%d" % number)
    put(site, log, b"c", b"committed", base_sequence=1, **producer)
    end_transaction(site, log, 5, commit=True)
    site.settle()
    site.write_checkpoints()
    return site, log


def _again(site: LogSite, log: Log) -> None:
    """Make the log dirty again; the abort marker of the first segment is then outdated, too."""
    site.ports.advance(20_000)
    for number in range(12):
        put(site, log, b"k%d" % (number % 2), b"again %d" % number)
    site.settle()
    site.write_checkpoints()


def _contents(site: LogSite) -> dict[str, bytes]:
    return {
        name: site.files.read_file(f"{DIRECTORY}/{name}") for name in site.files.listdir(DIRECTORY)
    }


def _segment(contents: Contents, base_offset: int) -> tuple[bytes, bytes]:
    """Return the records and the transaction index of a segment."""
    name = f"{base_offset:020d}"
    return contents[f"{name}.log"], contents.get(f"{name}.txnindex", b"")


def _start_until_it_succeeds(site: LogSite, number: int, seed: int) -> LogSite:
    """Lose power at the operation with this number of the first start; then start again."""
    site = site._successor(site.files.crash(random.Random(seed)))
    site.files.crash_at(number)
    try:
        return site.start()
    except SimCrash:
        return site.crash(seed)


def _runs(runs: int) -> Iterator[tuple[LogSite, Log]]:
    """Return sites before the last one of several compactions."""
    while True:
        site, log = _new_site()
        for _ in range(runs):
            compact(site)
            _again(site, log)
        yield site, log


# -- crashes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [0, 1, 2])
def test_power_loss_during_a_swap_and_its_recovery_leaves_old_or_new_segments(runs: int) -> None:
    sites = _runs(runs)
    site, log = next(sites)
    old, expected = _contents(site), latest(log, read_committed=True)
    start = site.files.operations
    named: list[int] = []
    site.files.on_operation = lambda one: (
        named.append(one.number) if one.name in ("rename", "unlink", "sync_dir") else None
    )
    compact(site)
    count, new = site.files.operations - start, _contents(site)
    assert _segment(old, 0) != _segment(new, 0)
    for number in range(1, count + 1):
        if number + start not in named:
            continue
        for recovery in range(1, 60, 12):
            seed = number * 100 + recovery
            site, log = next(sites)
            site.files.crash_at(site.files.operations + number)
            with pytest.raises(SimCrash):
                compact(site)
            site = _start_until_it_succeeds(site, recovery + number % 12, seed)
            log = site.log()
            state = f"operations {number} and {recovery}, seed {seed}"
            assert latest(log, read_committed=True) == expected, state
            assert unfinished_files(site, log) == [], state
            found = _contents(site)
            for base_offset in base_offsets(log)[:-1]:
                segments = [
                    _segment(one, base_offset)
                    for one in (old, new)
                    if f"{base_offset:020d}.log" in one
                ]
                assert _segment(found, base_offset) in segments, state
            assert not [line for line in site.reports if "lost" in line], state


# -- files that a broker has left -------------------------------------------------------------


class Leftovers:
    """The directory of a log before and after a compaction, from which tests make others."""

    def __init__(self) -> None:
        site, log = _new_site()
        self.old, self.records = _contents(site), stored(log)
        self.expected = latest(log, read_committed=True)
        compact(site)
        self.new, self.compacted = _contents(site), stored(log)
        self.bases = base_offsets(log)
        self._site = site

    def start(self, contents: Contents) -> LogSite:
        """Start a broker with these files, as after a kill."""
        site = self._site.next_life()
        for name in site.files.listdir(DIRECTORY):
            site.files.unlink(f"{DIRECTORY}/{name}")
        for name, content in contents.items():
            file = site.files.open_append(f"{DIRECTORY}/{name}")
            file.append(content)
            file.sync()
            file.close()
        site.files.sync_dir(DIRECTORY)
        return site.start()

    def swapped(self, *, without: tuple[str, ...] = ()) -> dict[str, bytes]:
        """Return the files of the first compacted segment, with the suffix ``.swap``."""
        names = [f"{self.bases[0]:020d}{suffix}" for suffix in SEGMENT if suffix not in without]
        return {name + SWAP_SUFFIX: self.new[name] for name in names if name in self.new}

    def check(self, site: LogSite, *, is_compacted: bool) -> list[Stored]:
        log = site.log()
        assert latest(log, read_committed=True) == self.expected
        assert unfinished_files(site, log) == []
        assert not [line for line in site.reports if "lost" in line or "damaged" in line]
        found = _contents(site)
        base = self.bases[0]
        assert _segment(found, base)[0] == _segment(self.new if is_compacted else self.old, base)[0]
        records = stored(log)
        assert set(records) <= set(self.records)
        return records


@pytest.mark.parametrize("without", [(), (".index",), (".timeindex",), (".index", ".timeindex")])
def test_swap_with_or_without_indexes_is_completed(without: tuple[str, ...]) -> None:
    files = Leftovers()
    site = files.start({**files.old, **files.swapped(without=without)})
    files.check(site, is_compacted=True)
    if not without:  # Otherwise, all indexes are rebuilt, from the records that remain.
        assert _segment(_contents(site), 0) == _segment(files.new, 0)
    site = site.restart()
    files.check(site, is_compacted=True)
    assert not [line for line in site.reports if "rebuilding" in line]


def test_swap_is_completed_if_the_old_files_are_marked_as_deleted() -> None:
    files = Leftovers()
    old = {
        (name + DELETED_SUFFIX if name.startswith(f"{0:020d}.") else name): content
        for name, content in files.old.items()
    }
    site = files.start({**old, **files.swapped()})
    files.check(site, is_compacted=True)


@pytest.mark.parametrize("suffix", SEGMENT)
def test_unfinished_segment_is_removed(suffix: str) -> None:
    files = Leftovers()
    name = f"{files.bases[0]:020d}{suffix}.cleaned"
    site = files.start({**files.old, name: b"unfinished"})
    files.check(site, is_compacted=False)


@pytest.mark.parametrize("suffix", SEGMENT[1:])
def test_index_of_a_compacted_segment_without_records_is_removed(suffix: str) -> None:
    files = Leftovers()
    name = f"{files.bases[0]:020d}{suffix}.swap"
    site = files.start({**files.old, name: b"unfinished", f"{0:020d}.log.cleaned": b"x"})
    files.check(site, is_compacted=False)


def test_compacted_segment_replaces_all_segments_up_to_its_end() -> None:
    files = Leftovers()
    second = f"{files.bases[1]:020d}"
    joined = files.new[f"{0:020d}.log"] + files.new[f"{second}.log"]
    site = files.start({**files.old, f"{0:020d}.log.swap": joined})
    log = site.log()
    assert latest(log, read_committed=True) == files.expected
    assert base_offsets(log) == [0, *files.bases[2:]]
    assert site.listing(log, ".snapshot") == base_offsets(log)[1:]
    assert latest(site.restart().log(), read_committed=True) == files.expected


def test_segment_that_kafka_has_split_is_completed() -> None:
    """Kafka gives all parts of a split segment the suffix together."""
    files = Leftovers()
    first, second = (f"{base:020d}" for base in files.bases[:2])
    joined = files.old[f"{first}.log"] + files.old[f"{second}.log"]
    old = {
        name: content for name, content in files.old.items() if not name.startswith((first, second))
    }
    parts = {f"{one}.log.swap": files.new[f"{one}.log"] for one in (first, second)}
    site = files.start({**old, f"{first}.log": joined, **parts})
    assert base_offsets(site.log()) == files.bases
    assert latest(site.log(), read_committed=True) == files.expected


def test_empty_compacted_segment_replaces_the_segment_with_its_offset() -> None:
    files = Leftovers()
    site = files.start({**files.old, f"{0:020d}.log.swap": b""})
    log = site.log()
    assert log.segments.first.size_bytes == 0
    assert latest(log, read_committed=True) == files.expected
    assert log.log_start_offset == 0
    assert latest(site.restart().log(), read_committed=True) == files.expected


def test_log_with_a_compacted_segment_is_completed_after_a_clean_stop() -> None:
    files = Leftovers()
    site = files.start(files.old)
    site.stop()
    for name, content in files.swapped().items():
        file = site.files.open_append(f"{DIRECTORY}/{name}")
        file.append(content)
        file.close()
    site = site.kill()
    files.check(site, is_compacted=True)
    assert site.log().recovery_point == site.log().log_end_offset, "the stop was clean"
