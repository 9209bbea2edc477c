"""A state machine over two compacted logs, and a simple model of them.

`LogHistory` appends to the logs as a leader and as a follower, rolls, compacts, deletes and
truncates them, and starts the broker again after clean stops, kills and power losses. A history is
a list of steps, each with a number from which the step derives all its choices. After some steps
and at the end, the logs are compared with the model (log_model.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from plog.records.batch import set_base_offset_and_epoch
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType
from plogd.log import file_names
from plogd.log.log import Log
from tests.helpers.log.compaction_site import (
    COMPACT,
    Stored,
    checkpointed_offset,
    compact,
    end_transaction,
    stored,
)
from tests.helpers.log.log_data import marker_batch
from tests.helpers.log.log_model import Entry, Model
from tests.helpers.log.log_site import LogSite
from tests.helpers.sim.sim_ports import outcome

RETENTION_MS = 10_000
"""For how long a tombstone stays."""
CONFIGS = {
    "t-0": replace(COMPACT, delete_retention_ms=RETENTION_MS),
    "u-0": replace(
        COMPACT,
        delete_retention_ms=RETENTION_MS,
        cleanup_policy=("compact", "delete"),
        retention_ms=60_000,
    ),
}
KEYS = (b"a", b"b", b"c", b"d")
_SLOW_WRITE_MS = 25.0

Step: TypeAlias = tuple[str, int]
"""The name of a method of `LogHistory`, and its argument."""


class Cut(NamedTuple):
    """A truncation that a crash interrupts: its offset, and the records that existed before."""

    offset: int
    present: frozenset[int]


class LogHistory:
    """Runs steps on a site, updates the models and compares both."""

    def __init__(self) -> None:
        self.site = LogSite().start()
        self.models = {name: Model() for name in CONFIGS}
        self._count = 0
        for name, config in CONFIGS.items():
            self.site.create(name, config)

    def run(self, steps: Iterable[Step]) -> None:
        """Run the steps and some others, and compare everything with the models."""
        for name, number in steps:
            getattr(self, name)(number)
        self.check_all()
        self.compact(0)
        self.check_all()
        self.crash(self._count)
        self.append(0)
        self.compact(0)
        self.check_all()

    def _log(self, number: int) -> tuple[Log, Model]:
        name = list(CONFIGS)[number % len(CONFIGS)]
        return self.site.log(name), self.models[name]

    # -- appends ------------------------------------------------------------------------------

    def append(self, number: int) -> None:
        """Append a batch as a leader."""
        log, model = self._log(number)
        entries, batch = self._batch(model, number, len(model.entries))
        info = log.append_as_leader(
            memoryview(bytearray(batch)),
            leader_epoch=self.site.epoch,
            now_ms=self.site.ports.clock.now_ms(),
        )
        assert (info.duplicate, info.first_offset) == (False, len(model.entries))
        model.entries += entries
        self.site.advance(log)

    def follow(self, number: int) -> None:
        """Append one to three batches as a follower, whose leader may have compacted its log."""
        log, model = self._log(number)
        added: list[Entry] = []
        data = bytearray()
        for index in range(1 + number % 3):
            if number // 3 % 3 == 0:
                offset = len(model.entries) + len(added)
                added += [Entry(offset, self.site.epoch)] * (1 + number % 4)
            offset = len(model.entries) + len(added)
            # Different producers, whose sequence numbers the model can therefore derive.
            entries, batch = self._batch(model, number + 2 * index, offset)
            if not index and number % 4 == 0:
                entries, batch = self._marker(model, number, offset) or (entries, batch)
            copy = bytearray(batch)
            set_base_offset_and_epoch(copy, 0, offset, self.site.epoch)
            added += entries
            data += copy
        if number % 5 == 0:
            data += copy[:-1]  # A fetch may end inside a batch.
        log.append_as_follower(
            memoryview(data),
            leader_epoch=self.site.epoch,
            now_ms=self.site.ports.clock.now_ms(),
        )
        model.entries += added
        self.site.advance(log)

    def _batch(self, model: Model, number: int, offset: int) -> tuple[list[Entry], bytes]:
        """Return a batch of one to three records, some of which are tombstones."""
        producer = number // 2 % 5
        producer_id = model.generation * 10 + producer if producer else -1
        sequence = model.sequences().get(producer_id, -1) + 1
        now_ms = self.site.ports.clock.now_ms()
        entries = []
        for index in range(1 + number // 10 % 3):
            self._count += 1
            is_tombstone = (number + index) % 7 == 0
            entries.append(
                Entry(
                    base_offset=offset,
                    epoch=self.site.epoch,
                    key=KEYS[(number + self._count) % len(KEYS)],
                    value=None if is_tombstone else b"%d" % self._count + b"." * number,
                    producer_id=producer_id,
                    sequence=sequence + index,
                    is_transactional=producer > 2,
                    timestamp=now_ms - number,
                    appended_ms=now_ms,
                )
            )
        batch = build_batch(
            [Record(timestamp=one.timestamp, key=one.key, value=one.value) for one in entries],
            producer_id=producer_id,
            producer_epoch=0 if producer else -1,
            base_sequence=sequence if producer else -1,
            is_transactional=producer > 2,
        )
        return entries, batch

    def end(self, number: int) -> None:
        """Commit or abort an open transaction."""
        log, model = self._log(number)
        found = self._marker(model, number, len(model.entries))
        if found is not None:
            [entry], _ = found
            offset = end_transaction(self.site, log, entry.producer_id, commit=entry.is_commit)
            assert offset == len(model.entries)
            model.entries.append(entry)

    def _marker(self, model: Model, number: int, offset: int) -> tuple[list[Entry], bytes] | None:
        """Return a marker for an open transaction, if there is one."""
        for producer_id in model.ongoing():
            is_commit = number // 2 % 2 == 0
            entry = Entry(
                offset,
                self.site.epoch,
                producer_id=producer_id,
                is_transactional=True,
                is_commit=is_commit,
            )
            control_type = ControlType.COMMIT if is_commit else ControlType.ABORT
            marker = marker_batch(0, control_type, producer_id=producer_id, producer_epoch=0)
            return [entry], marker
        return None

    def slow_disk(self, number: int) -> None:
        """Make writes slow, so that jobs write what is appended, or fast again."""
        took_ms = _SLOW_WRITE_MS * (number % 2)
        self.site.files.append_ms = lambda path: took_ms

    # -- other operations ---------------------------------------------------------------------

    def roll(self, number: int) -> None:
        """Begin another segment."""
        log, _ = self._log(number)
        if log.segments.active.size_bytes and not log.is_being_written:
            log.roll_soon()

    def compact(self, number: int) -> None:
        """Compact until nothing is dirty, or begin a compaction."""
        if number % 2:
            self.site.manager.cleaner.run()
            return
        self.site.settle()
        while compact(self.site):
            pass
        for name, model in self.models.items():
            if not model.generation:  # A truncation may end in a transaction.
                self._check_compacted(self.site.log(name), model)

    def compact_and_crash(self, number: int) -> None:
        """Lose power while a log is compacted."""
        self.site.settle()
        self.site.manager.cleaner.run()
        for _ in range(number % 25):
            self.turn(0)
            self.job(0)
        self.crash(number)

    def turn(self, number: int) -> None:
        """Run what is due on the reactor."""
        self.site.ports.timers.run_due()

    def job(self, number: int) -> None:
        """Run a job."""
        lanes = self.site.ports.jobs.waiting
        if lanes:
            self.site.ports.jobs.run_one(lanes[number % len(lanes)])

    def delete_records(self, number: int) -> None:
        """Delete some of the oldest records, like a DeleteRecords request."""
        log, _ = self._log(number)
        log.delete_records_before(max(log.log_start_offset, log.high_watermark - number // 2))

    def retain(self, number: int) -> None:
        """Apply retention."""
        self.site.manager.apply_retention(self.site.ports.clock.now_ms())

    def write(self, number: int) -> None:
        """Write a checkpoint."""
        manager = self.site.manager
        [manager.write_recovery_points, manager.write_high_watermarks, manager.write_log_starts][
            number % 3
        ]()

    def wait(self, number: int) -> None:
        """Let up to 15 seconds pass."""
        self.site.ports.advance(number * 300)

    # -- truncations --------------------------------------------------------------------------

    def truncate(self, number: int) -> None:
        """Remove some of the last records."""
        log, model, cut = self._place_to_cut(number)
        self.site.settle(log.truncate_to(cut.offset))
        self._truncated(log, model, cut)

    def truncate_before_syncs(self, number: int) -> None:
        """Remove some of the last records, while a sync that has begun takes very long."""
        log, model, cut = self._place_to_cut(number)
        later, jobs = log.truncate_to(cut.offset), self.site.ports.jobs
        while not later.done:
            if not self.site.ports.timers.run_due():
                waiting = jobs.waiting
                others = [lane for lane in waiting if not lane.startswith("sync:")]
                jobs.run_one((others or waiting)[0])
        outcome(later)
        self._truncated(log, model, cut)

    def truncate_and_crash(self, number: int) -> None:
        """Lose power while some of the last records are removed."""
        log, model, cut = self._place_to_cut(number)
        log.truncate_to(cut.offset)
        for _ in range(number % 12):
            self.turn(0)
            self.job(number)
        self._next(self.site.crash(number), {id(model): cut})

    def truncate_fully(self, number: int) -> None:
        """Remove all records, and begin the log again at an offset near its end."""
        log, model, cut = self._place_to_cut(number)
        start = cut.offset + number % 5
        self.site.settle(log.truncate_fully(start))
        assert log.log_start_offset == log.log_end_offset == log.high_watermark == start
        model.entries[:] = [Entry(offset, self.site.epoch) for offset in range(start)]
        model.cut(start, ())

    def _place_to_cut(self, number: int) -> tuple[Log, Model, Cut]:
        log, model = self._log(number)
        offset = max(log.log_start_offset, len(model.entries) - number // 3)
        return log, model, Cut(offset, frozenset(one.offset for one in stored(log)))

    def _truncated(self, log: Log, model: Model, cut: Cut) -> None:
        assert log.durable_end_offset <= log.log_end_offset <= cut.offset
        assert log.high_watermark <= log.log_end_offset
        self._cut(log, model, cut, durable_end_offset=cut.offset)

    def _cut(self, log: Log, model: Model, cut: Cut, *, durable_end_offset: int) -> None:
        """Check that no other record is missing, and truncate the model."""
        if log.log_end_offset == len(model.entries):
            return  # Nothing was removed.
        kept_end = min(model.batch_offset(cut.offset), durable_end_offset)
        lost = [one for one in cut.present if log.log_end_offset <= one < kept_end]
        assert lost == [], f"a truncation to {cut.offset} has also removed {lost}"
        model.cut(log.log_end_offset, (one.offset for one in stored(log)))

    # -- the end of the process ---------------------------------------------------------------

    def restart(self, number: int) -> None:
        """Stop the broker cleanly, and start it."""
        self._next(self.site.restart())

    def kill(self, number: int) -> None:
        """Kill the process; everything that it has written remains."""
        self._next(self.site.kill())

    def lose_snapshots(self, number: int) -> None:
        """Kill the process, and remove the snapshots of all producers."""
        site = self.site.next_life()
        for name in CONFIGS:
            directory = self.site.log(name).directory
            for file_name in site.files.listdir(directory):
                if file_name.endswith(file_names.SNAPSHOT_SUFFIX):
                    site.files.unlink(f"{directory}/{file_name}")
        self._next(site.start())
        for name, model in self.models.items():
            # As in Kafka, a producer of which only a marker is left cannot continue.
            if self.site.log(name).log_start_offset:
                model.generation += 1

    def crash(self, number: int) -> None:
        """Lose power."""
        self._next(self.site.crash(number))

    def _next(self, site: LogSite, cuts: Mapping[int, Cut] | None = None) -> None:
        """Continue with the next life; `cuts` are the truncations in progress by model."""
        old, self.site = self.site, site
        assert old.bugs == []
        assert not [line for line in site.reports if "has lost" in line or "damaged" in line]
        for name, model in self.models.items():
            log, durable_end_offset = site.log(name), old.log(name).durable_end_offset
            cut = (cuts or {}).get(id(model))
            assert log.log_end_offset <= len(model.entries)
            if cut is None:
                assert log.log_end_offset >= durable_end_offset
                del model.entries[log.log_end_offset :]
            else:
                self._cut(log, model, cut, durable_end_offset=durable_end_offset)
            self._check(log, model)

    # -- invariants ---------------------------------------------------------------------------

    def check_all(self) -> None:
        """Complete all work, and compare both logs with their models."""
        self.site.settle()
        assert (self.site.offline, self.site.bugs) == ([], [])
        assert self.site.manager.housekeeping.errors_by_task["compaction"] == 0
        for name, model in self.models.items():
            self._check(self.site.log(name), model)

    def _check(self, log: Log, model: Model) -> None:
        assert log.log_end_offset == log.durable_end_offset == len(model.entries)
        aborted = model.aborted()
        found = stored(log)
        assert [one.offset for one in found] == sorted({one.offset for one in found})
        for one in found:
            entry = model.entries[one.offset]
            expected = Stored(one.offset, entry.key, entry.value, entry.timestamp, entry.epoch)
            assert one == expected
        present = {one.offset for one in found}
        self._check_missing(log, model, aborted, present)
        self._check_transactions(log, model, aborted, present)
        self._check_producers(log, model)

    def _check_transactions(
        self, log: Log, model: Model, aborted: set[int], present: set[int]
    ) -> None:
        committed = {one.offset for one in stored(log, read_committed=True)}
        stable = log.last_stable_offset
        assert committed == {one for one in present if one < stable} - aborted
        expected = max(model.stable_offset(log.high_watermark), log.log_start_offset)
        if not log.log_start_offset and not model.generation:
            assert stable == expected
        else:  # An open transaction without remaining records may be unknown.
            assert expected <= stable <= log.high_watermark

    def _check_producers(self, log: Log, model: Model) -> None:
        sequences = {
            one.producer_id: one.last_sequence
            for one in log.producer_state.producers.values()
            if one.producer_id // 10 == model.generation and one.batches
        }
        expected = model.sequences()
        assert sequences.items() <= expected.items()
        if not log.log_start_offset and not model.generation:
            assert sequences == expected

    def _check_missing(self, log: Log, model: Model, aborted: set[int], present: set[int]) -> None:
        """A missing record has a later record of its key, is an old tombstone, or was aborted."""
        now_ms = self.site.ports.clock.now_ms()
        last: dict[bytes | None, int] = {}
        for offset in reversed(range(log.log_start_offset, log.high_watermark)):
            entry = model.entries[offset]
            if entry.key is None or entry.is_gone:
                continue
            if offset not in present:
                assert offset < log.segments.active.base_offset
                is_old = now_ms - entry.appended_ms >= RETENTION_MS and entry.value is None
                assert offset in aborted or entry.key in last or is_old, (offset, entry)
                # A value must not come back when its tombstone has been removed.
                if is_old and entry.key not in last and offset not in aborted:
                    last[entry.key] = offset
                    older = [
                        at
                        for at in range(log.log_start_offset, offset)
                        if model.entries[at].key == entry.key and at not in aborted
                    ]
                    assert present.isdisjoint(older), (offset, older)
            if offset not in aborted:
                last.setdefault(entry.key, offset)

    def _check_compacted(self, log: Log, model: Model) -> None:
        """Below the end of the compacted part, only the last record of each key remains."""
        aborted = model.aborted()
        end = checkpointed_offset(self.site, log) or 0
        last = {
            entry.key: offset
            for offset, entry in enumerate(model.entries[:end])
            if offset not in aborted
        }
        compacted = [one for one in stored(log) if one.offset < end]
        assert [one for one in compacted if one.offset != last.get(one.key)] == []


STEPS = (
    *["append"] * 10,
    *["follow", "end", "compact", "job"] * 4,
    *["roll", "turn", "truncate_before_syncs"] * 2,
    *["compact_and_crash", "truncate", "truncate_and_crash", "truncate_fully"],
    *["delete_records", "retain", "write", "wait", "slow_disk"],
    *["restart", "kill", "lose_snapshots", "crash"],
)
"""The steps of a history; frequent ones occur more than once."""
