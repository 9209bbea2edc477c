"""Logs against a model, over any history of operations on them, full disks and crashes."""

from __future__ import annotations

import errno
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hypothesis import example, given, settings
from hypothesis import strategies as st

from plog.errors import KafkaStorageError
from plogd.log.log import Log
from tests.helpers.log.log_data import client_batch
from tests.helpers.log.log_site import CONFIG, LogSite, batch_offsets, values
from tests.helpers.sim.sim_files import Operation

TOPICS = ("t-0", "u-0")


@dataclass(slots=True)
class Model:
    """The expected content of a log: value, epoch and producer of each offset."""

    topic_id: bytes
    values: list[bytes] = field(default_factory=list)
    epochs: list[int] = field(default_factory=list)
    producers: list[tuple[int, int] | None] = field(default_factory=list)
    durable_end_offset: int = 0
    log_start_offset: int = 0
    kept_state: bool = True
    """Whether every snapshot could be written."""

    def sequences(self) -> dict[int, int]:
        """The last sequence number of each producer."""
        return dict(entry for entry in self.producers if entry is not None)

    def cut(self, end_offset: int) -> None:
        for column in (self.values, self.epochs, self.producers):
            del column[end_offset:]


class History:
    """Runs steps on a site and updates the models; `check` compares them."""

    def __init__(self) -> None:
        self.site = LogSite().start()
        self.models: dict[str, Model] = {}
        self.is_full = False
        self.count = 0
        for name in TOPICS:
            self._create(name)

    def _create(self, name: str) -> None:
        log = self.site.create(name, replace(CONFIG, segment_bytes=600))
        self.models[name] = Model(log.topic_id)

    def _log(self, number: int) -> tuple[Log, Model]:
        name = TOPICS[number % len(TOPICS)]
        return self.site.log(name), self.models[name]

    # -- steps --------------------------------------------------------------------------------

    def append(self, number: int) -> None:
        log, model = self._log(number)
        producer_id = number // 2 % 3
        self.count += 1
        value = str(self.count).encode().ljust(20 * (number // 6), b".")
        how = {}
        if producer_id:
            sequence = model.sequences().get(producer_id, -1) + 1
            how = dict(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
        try:
            info = self.site.append(log, value=value, **how)
        except KafkaStorageError:
            assert self.is_full
            return
        assert (info.duplicate, info.first_offset) == (False, len(model.values))
        model.values.append(value)
        model.epochs.append(self.site.epoch)
        model.producers.append((producer_id, how["base_sequence"]) if how else None)

    def follow(self, number: int) -> None:
        """Append one to three batches as a follower."""
        log, model = self._log(number)
        batches, added = [], []
        sequences = model.sequences()
        for producer_id in range(1 + number % 3):
            self.count += 1
            value = str(self.count).encode().ljust(20 * (number // 6), b".")
            how, producer = {}, None
            if producer_id:
                # As if the leader had forgotten the producer: any sequence number may follow.
                sequence = sequences.get(producer_id, -1) + 1 + number % 2
                producer = (producer_id, sequence)
                how = dict(producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
            batches.append(client_batch(value=value, **how))
            added.append((value, producer))
        try:
            self.site.follow(log, *batches)
            assert log.log_end_offset == len(model.values) + len(batches)
        except KafkaStorageError:
            assert self.is_full
        for value, producer in added[: log.log_end_offset - len(model.values)]:
            model.values.append(value)
            model.epochs.append(self.site.epoch)
            model.producers.append(producer)

    def truncate(self, number: int) -> None:
        """Remove some of the last records."""
        if not self.is_full:
            log, model, offset = self._place_to_cut(number)
            self.site.settle(log.truncate_to(offset))
            self._note_cut(log, model, offset, is_fully=False)

    def truncate_and_crash(self, number: int) -> None:
        """Lose power while the last records are removed."""
        if not self.is_full:
            log, model, offset = self._place_to_cut(number)
            log.truncate_to(offset)
            for _ in range(number % 8):
                self.turn(0)
                self.job(number)
            self.crash(number, {model.topic_id: offset})

    def truncate_fully(self, number: int) -> None:
        """Remove all records, so that the log begins again."""
        if not self.is_full:
            log, model, offset = self._place_to_cut(number)
            self.site.settle(log.truncate_fully(offset))
            self._note_cut(log, model, offset, is_fully=True)
            model.log_start_offset = offset
            assert log.log_start_offset == log.log_end_offset == offset

    def _place_to_cut(self, number: int) -> tuple[Log, Model, int]:
        log, model = self._log(number)
        return log, model, max(log.log_start_offset, log.log_end_offset - number // 4)

    def _note_cut(self, log: Log, model: Model, offset: int, *, is_fully: bool) -> None:
        assert log.log_end_offset == log.durable_end_offset == offset
        model.cut(offset)
        if is_fully:
            model.producers[:] = [None] * offset
        assert self._sequences(log).items() <= model.sequences().items()
        if model.kept_state:
            assert self._sequences(log) == model.sequences()

    def turn(self, number: int) -> None:
        self.site.ports.timers.run_due()

    def job(self, number: int) -> None:
        lanes = self.site.ports.jobs.waiting
        if lanes:
            self.site.ports.jobs.run_one(lanes[number % len(lanes)])

    def retain(self, number: int) -> None:
        """Move the log start, as DeleteRecords does, which deletes old segments."""
        log, model = self._log(number)
        log.log_start_offset = max(log.log_start_offset, log.high_watermark - number // 2)
        model.log_start_offset = log.log_start_offset
        log.apply_retention(self.site.ports.clock.now_ms())
        model.kept_state = model.kept_state and not self.is_full

    def write(self, number: int) -> None:
        manager = self.site.manager
        [manager.write_recovery_points, manager.write_high_watermarks, manager.write_log_starts][
            number % 3
        ]()

    def wait(self, number: int) -> None:
        self.site.ports.advance(CONFIG.file_delete_delay_ms * (number % 3))

    def recreate(self, number: int) -> None:
        if not self.is_full:
            name = TOPICS[number % len(TOPICS)]
            self.site.delete(name)
            self._create(name)

    def fill_disk(self, number: int) -> None:
        self.is_full = not self.is_full
        if self.is_full:
            self.site.files.fail_when(
                lambda operation: (
                    operation.name == "append" and (number % 2 == 0 or _is_small(operation))
                ),
                errno.ENOSPC,
            )
            for model in self.models.values():
                model.kept_state = False
        else:
            self.site.files.fail_no_more()

    def restart(self, number: int) -> None:
        if not self.is_full:
            self.site.ports.settle()
            self._next(self.site.restart())

    def kill(self, number: int) -> None:
        self._next(self.site.kill())

    def crash(self, number: int, cuts: Mapping[bytes, int] | None = None) -> None:
        """Lose power; `cuts` are the offsets of unfinished truncations, by topic id."""
        self._next(self.site.crash(number), cuts or {})

    # -- invariants ---------------------------------------------------------------------------

    def _next(self, site: LogSite, cuts: Mapping[bytes, int] | None = None) -> None:
        for name, model in self.models.items():
            durable_end_offset = self.site.log(name).durable_end_offset
            cut = (cuts or {}).get(model.topic_id, durable_end_offset)
            model.durable_end_offset = min(durable_end_offset, cut)
        self.site, self.is_full = site, False
        for name, model in self.models.items():
            self._check_loaded(site.log(name), model)

    def _check_loaded(self, log: Log, model: Model) -> None:
        assert log.topic_id == model.topic_id
        assert model.durable_end_offset <= log.log_end_offset <= len(model.values)
        assert log.durable_end_offset == log.log_end_offset
        assert log.log_start_offset <= model.log_start_offset
        model.cut(log.log_end_offset)
        model.log_start_offset = log.log_start_offset
        state = self._sequences(log)
        if model.kept_state:
            assert state == model.sequences()
        # A producer may be unknown if its snapshot had no space, but its state is never wrong.
        else:
            assert state.items() <= model.sequences().items()
        self.check(log, model)

    def _sequences(self, log: Log) -> dict[int, int]:
        return {
            producer.producer_id: producer.last_sequence
            for producer in log.producer_state.producers.values()
        }

    def check_all(self) -> None:
        self.site.settle()
        assert self.site.offline == []
        for name, model in self.models.items():
            log = self.site.log(name)
            assert log.durable_end_offset == log.log_end_offset == len(model.values)
            self.check(log, model)

    def check(self, log: Log, model: Model) -> None:
        """All appended records can be read, each batch in its epoch."""
        expected = dict(enumerate(model.values[: log.high_watermark]))
        offsets = list(expected)[log.log_start_offset :]
        assert values(log) == {offset: expected[offset] for offset in offsets}
        assert batch_offsets(log) == offsets
        epochs = [log.leader_epochs.epoch_for_offset(offset) for offset in offsets]
        self.check_epochs(epochs, model.epochs[log.log_start_offset : log.high_watermark])

    def check_epochs(self, epochs: list[int], expected: list[int]) -> None:
        assert epochs == expected


def _is_small(operation: Operation) -> bool:
    """A full disk may have space for one file, but not for the next."""
    return not operation.path.endswith(".log")


STEPS = (
    *["append"] * 8,
    *["job"] * 5,
    *["turn"] * 3,
    *["retain", "write", "wait", "recreate", "fill_disk", "restart", "kill", "crash", "crash"],
    *["follow"] * 3,
    *["truncate", "truncate_and_crash", "truncate_fully"],
)


@settings(max_examples=300, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 50)), max_size=60))
@example(steps=[*[("append", 42)] * 4, ("fill_disk", 1), ("append", 42), ("kill", 0)])
@example(steps=[("append", 37), ("append", 43), ("append", 43), ("crash", 27)])
@example(
    steps=[
        *[("append", 0)] * 14,
        *[("append", 1), ("append", 30), ("truncate", 5)],
        *[("append", 0)] * 5,
        *[("retain", 0), ("append", 0), ("job", 0), ("kill", 0)],
    ]
)
def test_any_history_keeps_exactly_the_acknowledged_records(steps: list[tuple[str, int]]) -> None:
    history = History()
    for name, number in steps:
        getattr(history, name)(number)
    if history.is_full:
        history.fill_disk(0)
    history.check_all()
    history.crash(len(steps))
    history.append(0)
    history.check_all()
