"""Transactions against a model, over any history of operations on logs, full disks and crashes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from plog.errors import KafkaStorageError
from plog.records.control import encode_end_txn_value
from plogd.log import file_names
from plogd.log.batch_validator import AppendOrigin
from plogd.log.log import Log
from tests.helpers.log.log_data import client_batch
from tests.helpers.log.log_site import CONFIG, base_offsets
from tests.helpers.log.transactions import (
    ABORT,
    COMMIT,
    DATA,
    PLAIN,
    Entry,
    TransactionModel,
    index_files,
    marker_of,
    read_committed,
    read_once,
)
from tests.unit.log.test_log_manager_history import STEPS as OTHER_STEPS
from tests.unit.log.test_log_manager_history import History, Model

MARKER_VALUE = encode_end_txn_value(4)


@dataclass(slots=True)
class TransactionalModel(Model):
    """The expected content of a log, and the batches that belong to transactions."""

    transactional: dict[int, Entry] = field(default_factory=dict)
    """Data and markers by offset; each batch has one record."""

    def cut(self, end_offset: int) -> None:
        # Without arguments, `super` fails in a dataclass with slots.
        Model.cut(self, end_offset)
        for offset in [offset for offset in self.transactional if offset >= end_offset]:
            del self.transactional[offset]

    def sequences(self) -> dict[int, int]:
        """The last sequence number of each producer that has one in its newest epoch."""
        return {one: last for one, last in Model.sequences(self).items() if last >= 0}

    def batches(self, start: int = 0) -> TransactionModel:
        """Return the batches from `start` on."""
        entries = [
            self.transactional.get(offset, Entry(PLAIN, 1, value=value, first_offset=offset))
            for offset, value in enumerate(self.values)
        ]
        return TransactionModel(entries[start:])


class TransactionHistory(History):
    """Also runs steps of transactional producers, whose ids are 11 to 13."""

    def _create(self, name: str) -> None:
        log = self.site.create(name, replace(CONFIG, segment_bytes=600))
        self.models[name] = TransactionalModel(log.topic_id)

    def _pair(self, number: int) -> tuple[Log, TransactionalModel]:
        log, model = self._log(number)
        assert isinstance(model, TransactionalModel)
        return log, model

    # -- steps --------------------------------------------------------------------------------

    def _batch(
        self, log: Log, model: TransactionalModel, number: int, kind: str
    ) -> tuple[memoryview, Entry, int]:
        """Return a batch, its entry, and the producer's last sequence number after it."""
        producer_id = 11 + number // 2 % 3
        epoch = model.batches().epoch_of(producer_id)
        last_sequence = model.sequences().get(producer_id, -1)
        if kind != DATA:
            is_bump = number % 4 == 0
            epoch += is_bump
            last_sequence = -1 if is_bump else last_sequence
            entry = Entry(kind, 1, producer_id, epoch, value=MARKER_VALUE)
            return marker_of(producer_id, epoch, commits=kind == COMMIT), entry, last_sequence
        known = log.producer_state.producers.get(producer_id)
        # The snapshot with the last sequence number may have had no space.
        sequence = (last_sequence if known is None else known.last_sequence) + 1
        self.count += 1
        value = str(self.count).encode().ljust(20 * (number // 6), b".")
        batch = client_batch(
            value=value,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        return batch, Entry(DATA, 1, producer_id, epoch, sequence, value), sequence

    def _note(self, model: TransactionalModel, entry: Entry, sequence: int) -> None:
        offset = len(model.values)
        assert entry.value is not None
        model.values.append(entry.value)
        model.epochs.append(self.site.epoch)
        model.producers.append((entry.producer_id, sequence))
        model.transactional[offset] = replace(entry, first_offset=offset)

    def _lead(self, number: int, kind: str) -> None:
        log, model = self._pair(number)
        batch, entry, sequence = self._batch(log, model, number, kind)
        origin = AppendOrigin.CLIENT if kind == DATA else AppendOrigin.COORDINATOR
        try:
            info = self.site.append_batch(log, batch, origin)
        except KafkaStorageError:
            assert self.is_full
            return
        assert (info.duplicate, info.first_offset) == (False, len(model.values))
        self._note(model, entry, sequence)

    def data(self, number: int) -> None:
        """Append a batch of a transaction."""
        self._lead(number, DATA)

    def commit(self, number: int) -> None:
        self._lead(number, COMMIT)

    def abort(self, number: int) -> None:
        self._lead(number, ABORT)

    def follow_transaction(self, number: int) -> None:
        """Append the data and the marker of a transaction as a follower."""
        log, model = self._pair(number)
        before = len(model.values)
        added: list[tuple[memoryview, Entry, int]] = []
        for kind in (DATA, ABORT if number % 3 else COMMIT):
            added.append(self._batch(log, model, number, kind))
            self._note(model, *added[-1][1:])
        try:
            self.site.follow(log, *(batch for batch, _, _ in added))
            assert log.log_end_offset == before + len(added)
        except KafkaStorageError:
            assert self.is_full
            model.cut(log.log_end_offset)

    def look(self, number: int) -> None:
        """Read while syncs and seals are pending."""
        self.check(*self._pair(number))

    def _note_cut(self, log: Log, model: Model, offset: int, *, is_fully: bool) -> None:
        if is_fully:
            assert isinstance(model, TransactionalModel)
            model.transactional.clear()
        super()._note_cut(log, model, offset, is_fully=is_fully)

    def _place_to_cut(self, number: int) -> tuple[Log, Model, int]:
        log, model, offset = super()._place_to_cut(number)
        # The truncation removes the snapshots above the offset, and there may be none below it.
        model.kept_state = model.kept_state and not log.log_start_offset
        return log, model, offset

    # -- invariants ---------------------------------------------------------------------------

    def check_epochs(self, epochs: list[int], expected: list[int]) -> None:
        # If a crash undoes a deletion, the epochs of the deleted records may stay unknown.
        unknown = epochs.count(-1)
        assert epochs[unknown:] == expected[unknown:]

    def _sequences(self, log: Log) -> dict[int, int]:
        # A marker may be the only batch of a producer, or the only one that recovery has found.
        return {one: last for one, last in super()._sequences(log).items() if last >= 0}

    def check(self, log: Log, model: Model) -> None:
        super().check(log, model)
        assert isinstance(model, TransactionalModel)
        batches, start = model.batches(), log.log_start_offset
        lowest = max(batches.stable_offset(log.high_watermark), start)
        stable_offset = log.last_stable_offset
        if model.kept_state:
            assert stable_offset == lowest
        else:  # A transaction without remaining records may be unknown.
            highest = max(model.batches(start).stable_offset(log.high_watermark), start)
            assert lowest <= stable_offset <= highest
        found = read_committed(log, known=batches.aborted() if model.kept_state else None)
        assert found == batches.committed(start, stable_offset)
        for offset in range(start, stable_offset, 5):
            found, end = read_once(log, offset)
            assert found == batches.committed(offset, end)

    def check_all(self) -> None:
        super().check_all()
        for name, model in self.models.items():
            assert isinstance(model, TransactionalModel)
            log = self.site.log(name)
            log.segments.active.flush_indexes()
            bases = base_offsets(log)
            ends = [*bases[1:], log.log_end_offset]
            batches = model.batches()
            expected = {b: batches.index_of(b, e) for b, e in zip(bases, ends, strict=True)}
            files = index_files(self.site.files, log.directory)
            if model.kept_state:
                assert files == {base: content for base, content in expected.items() if content}
            names = self.site.files.listdir(log.directory)
            assert not [one for one in names if one.endswith(f"{file_names.TXN_INDEX_SUFFIX}.tmp")]


STEPS = (
    *OTHER_STEPS,
    *["data"] * 8,
    *["abort", "look"] * 4,
    *["commit", "follow_transaction"] * 3,
)


def run(steps: list[tuple[str, int]]) -> None:
    history = TransactionHistory()
    for name, number in steps:
        step: Any = getattr(history, name)
        step(number)
    if history.is_full:
        history.fill_disk(0)
    history.check_all()
    history.crash(len(steps))
    history.append(0)
    history.check_all()


@settings(max_examples=200, deadline=None)
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 50)), max_size=60))
def test_any_history_shows_exactly_the_committed_records(steps: list[tuple[str, int]]) -> None:
    run(steps)
