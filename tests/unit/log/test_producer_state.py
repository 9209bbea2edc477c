"""Idempotent producers: duplicates, gaps, fencing, wrap, expiration, and snapshots."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plog.errors import InvalidProducerEpoch, InvalidTxnState, OutOfOrderSequenceNumber
from plog.records.batch import BatchHeader, parse_header
from plog.records.control import ControlType
from plogd.log.batch_validator import AppendOrigin
from plogd.log.producer_snapshot import ProducerSnapshots
from plogd.log.producer_state import BatchMetadata, ProducerState, ProducerStateManager
from plogd.log.segment.transaction_index import AbortedTransaction
from tests.helpers.log.log_data import T0, client_batch, marker_batch
from tests.helpers.sim.sim_files import SimFiles

PID = 4711
MAX_SEQUENCE = 2**31 - 1
DAY_MS = 86_400_000
CLIENT = AppendOrigin.CLIENT


def _manager(files: SimFiles | None = None) -> ProducerStateManager:
    files = files or SimFiles()
    files.mkdir("/log")
    return ProducerStateManager(ProducerSnapshots(files, "/log"), expiration_ms=DAY_MS)


def _header(
    sequence: int,
    count: int = 1,
    *,
    epoch: int = 0,
    pid: int = PID,
    transactional: bool = False,
    **how: Any,
) -> BatchHeader:
    return parse_header(
        client_batch(
            count,
            producer_id=pid,
            producer_epoch=epoch,
            base_sequence=sequence,
            is_transactional=transactional,
            **how,
        )
    )


def _append(manager: ProducerStateManager, header: BatchHeader, offset: int) -> None:
    assert manager.check(header, CLIENT) is None
    manager.update(header, first_offset=offset)


def _end(
    manager: ProducerStateManager, offset: int, *, commit: bool = True, **how: Any
) -> list[AbortedTransaction]:
    """Record a marker of producer PID at `offset`; return the transaction that it aborts."""
    aborted: list[AbortedTransaction] = []
    control_type = ControlType.COMMIT if commit else ControlType.ABORT
    batch = marker_batch(offset, control_type, **({"producer_id": PID, "producer_epoch": 0} | how))
    manager.complete_transaction(parse_header(batch), batch, offset, aborted.append)
    return aborted


def test_batches_in_order_are_accepted() -> None:
    manager = _manager()
    for number in range(20):
        _append(manager, _header(3 * number, 3), 100 + 3 * number)
    state = manager.producers[PID]
    assert (state.last_sequence, len(state.batches)) == (59, 5)


def test_batches_without_producer_id_are_not_tracked() -> None:
    manager = _manager()
    header = parse_header(client_batch())
    assert manager.check(header, CLIENT) is None
    assert manager.producers == {}


def test_last_five_batches_are_recognized_as_duplicates() -> None:
    manager = _manager()
    for number in range(6):
        _append(manager, _header(2 * number, 2), 100 + 2 * number)
    for number in range(1, 6):
        found = manager.check(_header(2 * number, 2), CLIENT)
        assert found == BatchMetadata(2 * number + 1, 101 + 2 * number, 1, T0)
        assert found.first_offset == 100 + 2 * number


def test_batch_older_than_the_last_five_is_out_of_order() -> None:
    manager = _manager()
    for number in range(6):
        _append(manager, _header(2 * number, 2), 100 + 2 * number)
    with pytest.raises(OutOfOrderSequenceNumber):
        manager.check(_header(0, 2), CLIENT)


def test_batch_that_only_overlaps_a_known_one_is_out_of_order() -> None:
    manager = _manager()
    _append(manager, _header(0, 4), 100)
    for sequence, count in ((0, 3), (1, 3), (2, 4), (0, 5)):
        with pytest.raises(OutOfOrderSequenceNumber):
            manager.check(_header(sequence, count), CLIENT)


def test_gap_is_refused_and_changes_nothing() -> None:
    manager = _manager()
    _append(manager, _header(0), 100)
    with pytest.raises(OutOfOrderSequenceNumber, match="2 after 0"):
        manager.check(_header(2), CLIENT)
    _append(manager, _header(1), 101)


def test_unknown_producer_may_begin_with_any_sequence_number() -> None:
    """Retention may have deleted its batches, and its state may have expired (KIP-360)."""
    manager = _manager()
    _append(manager, _header(500), 100)
    _append(manager, _header(501), 101)


def test_sequence_numbers_wrap_to_zero() -> None:
    manager = _manager()
    _append(manager, _header(MAX_SEQUENCE - 2, 2), 100)
    _append(manager, _header(MAX_SEQUENCE), 102)
    _append(manager, _header(0), 103)
    _append(manager, _header(1), 104)


def test_batch_across_the_wrap_is_recognized_as_duplicate() -> None:
    manager = _manager()
    _append(manager, _header(MAX_SEQUENCE - 1, 5), 100)
    assert manager.producers[PID].last_sequence == 2
    assert manager.check(_header(MAX_SEQUENCE - 1, 5), CLIENT) == BatchMetadata(2, 104, 4, T0)
    _append(manager, _header(3), 105)


def test_new_epoch_begins_at_zero() -> None:
    manager = _manager()
    _append(manager, _header(0, 5), 100)
    with pytest.raises(OutOfOrderSequenceNumber):
        manager.check(_header(5, epoch=1), CLIENT)
    _append(manager, _header(0, epoch=1), 105)
    assert len(manager.producers[PID].batches) == 1


def test_old_epoch_is_fenced() -> None:
    manager = _manager()
    _append(manager, _header(0, epoch=3), 100)
    for sequence in (0, 1):
        with pytest.raises(InvalidProducerEpoch):
            manager.check(_header(sequence, epoch=2), CLIENT)
    with pytest.raises(InvalidProducerEpoch):
        manager.check(_header(1, epoch=2), AppendOrigin.COORDINATOR)


def test_coordinator_has_no_sequence_numbers() -> None:
    manager = _manager()
    _append(manager, _header(0), 100)
    assert manager.check(_header(-1), AppendOrigin.COORDINATOR) is None


def test_replicated_batches_are_not_checked() -> None:
    manager = _manager()
    _append(manager, _header(0, epoch=3), 100)
    assert manager.check(_header(77, epoch=1), AppendOrigin.REPLICATION) is None


def test_producers_are_independent() -> None:
    manager = _manager()
    _append(manager, _header(0, pid=1), 100)
    _append(manager, _header(0, pid=2), 101)
    _append(manager, _header(1, pid=1), 102)


def test_log_append_time_is_recorded() -> None:
    manager = _manager()
    manager.update(_header(0), first_offset=100, max_timestamp=T0 + 5)
    assert manager.producers[PID].last_timestamp == T0 + 5


# -- transactions -----------------------------------------------------------------------------


def test_open_transaction_refuses_other_batches() -> None:
    manager = _manager()
    _append(manager, _header(0, transactional=True), 100)
    _append(manager, _header(1, transactional=True), 101)
    assert manager.producers[PID].current_txn_first_offset == 100
    with pytest.raises(InvalidTxnState):
        manager.check(_header(2), CLIENT)


def test_marker_completes_a_transaction_and_may_raise_the_epoch() -> None:
    manager = _manager()
    _append(manager, _header(0, transactional=True), 100)
    _append(manager, _header(0, pid=2, transactional=True), 101)
    assert _end(manager, 102, producer_epoch=1) == []
    assert manager.producers[PID].current_txn_first_offset is None
    assert manager.producers[2].current_txn_first_offset == 101
    with pytest.raises(OutOfOrderSequenceNumber):
        manager.check(_header(1, epoch=1), CLIENT)
    _append(manager, _header(0, epoch=1), 103)


def test_marker_of_an_unknown_producer_is_recorded() -> None:
    manager = _manager()
    assert _end(manager, 100, commit=False) == []
    assert manager.producers[PID].coordinator_epoch == 4


def test_aborted_transaction_has_the_stable_offset_after_its_end() -> None:
    manager = _manager()
    _append(manager, _header(0, transactional=True), 100)
    _append(manager, _header(0, pid=2, transactional=True), 101)
    assert _end(manager, 102, commit=False) == [AbortedTransaction(PID, 100, 102, 101)]
    assert _end(manager, 103, commit=False, producer_id=2) == [AbortedTransaction(2, 101, 103, 104)]


def test_marker_that_cannot_be_indexed_changes_nothing() -> None:
    def refuse(aborted: AbortedTransaction) -> None:
        raise OSError("full")

    manager = _manager()
    _append(manager, _header(0, transactional=True), 100)
    batch = marker_batch(101, ControlType.ABORT, producer_id=PID)
    with pytest.raises(OSError, match="full"):
        manager.complete_transaction(parse_header(batch), batch, 101, refuse)
    assert manager.producers[PID].current_txn_first_offset == 100
    assert manager.transactions.stable_offset(102) == 100


def test_open_transactions_survive_a_snapshot() -> None:
    files = SimFiles()
    manager = _manager(files)
    for pid, offset in ((1, 10), (2, 11), (3, 12)):
        _append(manager, _header(0, pid=pid, transactional=True), offset)
    _end(manager, 13, producer_id=1)
    manager.write_snapshot(14)
    loaded = _manager(files)
    loaded.load(0, 14)
    assert loaded.transactions.stable_offset(14) == 11


# -- expiry -----------------------------------------------------------------------------------


def test_inactive_producers_expire_unless_a_transaction_is_open() -> None:
    manager = _manager()
    _append(manager, _header(0, pid=1), 100)
    _append(manager, _header(0, pid=2, transactional=True), 101)
    for now_ms in (5, DAY_MS + 4):
        manager.remove_expired(now_ms)
        assert set(manager.producers) == {1, 2}
    manager.remove_expired(DAY_MS + 5)
    assert set(manager.producers) == {2}
    _append(manager, _header(900, pid=1), 102)


def test_each_append_resets_inactivity_whatever_its_timestamp() -> None:
    manager = _manager()
    for number in range(5):
        _append(manager, _header(number, timestamp=7), 100 + number)
        manager.remove_expired(number * (DAY_MS - 1))
    assert set(manager.producers) == {PID}
    manager.remove_expired(4 * (DAY_MS - 1) + DAY_MS)
    assert manager.producers == {}


def test_expiration_of_many_producers_runs_in_steps() -> None:
    manager = _manager()
    for pid in range(2500):
        _append(manager, _header(0, pid=pid), pid)
    steps = manager.expire(0)
    next(steps)
    _append(manager, _header(0, pid=9000), 9000)
    del manager.producers[2400]
    assert len(list(steps)) == 1
    manager.remove_expired(DAY_MS)
    assert set(manager.producers) == {9000}


# -- snapshots --------------------------------------------------------------------------------


def test_state_survives_a_snapshot_with_its_newest_batch() -> None:
    files = SimFiles()
    manager = _manager(files)
    _append(manager, _header(0, 3), 100)
    _append(manager, _header(3, 2), 103)
    _append(manager, _header(0, pid=8, epoch=2, transactional=True), 105)
    _end(manager, 106, producer_id=9)
    manager.write_snapshot(106)
    assert files.listdir("/log") == ["00000000000000000106.snapshot"]
    loaded = _manager(files)
    assert loaded.load(0, 106) == 106
    assert {pid: state.to_snapshot() for pid, state in loaded.producers.items()} == {
        pid: state.to_snapshot() for pid, state in manager.producers.items()
    }
    assert loaded.check(_header(3, 2), CLIENT) == BatchMetadata(4, 104, 1, T0)
    assert loaded.producers[8].current_txn_first_offset == 105
    _append(loaded, _header(5), 106)


def test_snapshot_has_the_state_at_its_preparation() -> None:
    files = SimFiles()
    manager = _manager(files)
    _append(manager, _header(0), 100)
    write = manager.prepare_snapshot(101)
    _append(manager, _header(1), 101)
    write()
    loaded = _manager(files)
    loaded.load(0, 101)
    assert loaded.producers[PID].last_sequence == 0


def test_each_pending_snapshot_has_its_own_state() -> None:
    files = SimFiles()
    manager = _manager(files)
    writes = []
    for number in range(3):
        _append(manager, _header(number), 100 + number)
        _append(manager, _header(0, pid=number), 200 + number)
        writes.append(manager.prepare_snapshot(101 + number))
    manager.remove_expired(0)
    manager.remove_expired(DAY_MS)
    assert manager.producers == {}
    for number in reversed(range(3)):
        writes[number]()
        loaded = _manager(files)
        loaded.load(0, 101 + number)
        assert loaded.producers[PID].last_sequence == number
        assert len(loaded.producers) == number + 2


def test_preparing_a_snapshot_leaves_the_work_to_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = _manager()
    _append(manager, _header(0), 100)
    encoded: list[int] = []
    to_snapshot = ProducerState.to_snapshot
    monkeypatch.setattr(
        ProducerState,
        "to_snapshot",
        lambda state: encoded.append(state.producer_id) or to_snapshot(state),
    )
    write = manager.prepare_snapshot(101)
    assert encoded == []
    write()
    assert encoded == [PID]


def test_snapshot_is_durable_when_it_is_written() -> None:
    files = SimFiles(["/log"])
    manager = _manager(files)
    _append(manager, _header(0), 100)
    manager.write_snapshot(101)

    class Never:
        def randrange(self, stop: int, /) -> int:
            return 0

    assert _manager(files.crash(Never())).load(0, 101) == 101


def _with_snapshots(*offsets: int) -> tuple[SimFiles, ProducerStateManager]:
    files = SimFiles()
    manager = _manager(files)
    for offset in offsets:
        _append(manager, _header(offset, pid=offset), offset)
        manager.write_snapshot(offset)
    return files, _manager(files)


def test_newest_snapshot_within_the_log_is_loaded_and_those_outside_deleted() -> None:
    _, manager = _with_snapshots(10, 20, 30, 40)
    assert manager.load(10, 35) == 30
    assert set(manager.producers) == {10, 20, 30}
    assert manager.snapshots.offsets() == [10, 20, 30]


def test_damaged_snapshot_is_deleted_and_the_one_before_it_loaded() -> None:
    files, manager = _with_snapshots(10, 20, 30)
    files.overwrite(manager.snapshots.path(30), b"garbage")
    files.overwrite(manager.snapshots.path(20), b"")
    assert manager.load(0, 99) == 10
    assert manager.snapshots.offsets() == [10]


def test_without_a_snapshot_replay_begins_at_the_logs_start() -> None:
    _, manager = _with_snapshots(10)
    manager.producers.clear()
    assert manager.load(50, 99) is None
    assert manager.producers == {}
    assert manager.snapshots.offsets() == []


def test_loaded_producers_are_inactive_since_their_segment_was_written() -> None:
    _, manager = _with_snapshots(10, 20)
    manager.load(0, 99)
    manager.date_silence(lambda batch: {10: 1000.0, 20: 5000.0}[batch.last_offset])
    manager.remove_expired(1000.0 + DAY_MS)
    assert set(manager.producers) == {20}


def test_snapshots_without_a_segment_are_deleted_except_one_after_all() -> None:
    _, manager = _with_snapshots(5, 10, 15, 20, 25, 30)
    manager.snapshots.delete_stray([0, 10, 20])
    assert manager.snapshots.offsets() == [10, 20, 30]
    manager.snapshots.delete_stray([0, 20, 40])
    assert manager.snapshots.offsets() == [20]


def test_snapshots_are_deleted_along_with_their_segments() -> None:
    _, manager = _with_snapshots(10, 20, 30)
    manager.snapshots.delete_before(20)
    assert manager.snapshots.offsets() == [20, 30]
    manager.snapshots.delete(20)
    assert manager.snapshots.offsets() == [30]


def test_newest_snapshot_is_kept_when_there_is_none_at_the_first_segment() -> None:
    _, manager = _with_snapshots(10, 20, 40)
    manager.snapshots.delete_before(30)
    assert manager.snapshots.offsets() == [20, 40]


def test_other_files_are_not_snapshots() -> None:
    files = SimFiles(["/log"])
    for name in ("00000000000000000010.log", "x.snapshot", "00000000000000000010.snapshot.tmp"):
        files.open_append(f"/log/{name}").close()
    assert _manager(files).snapshots.offsets() == []


# -- all together -----------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 3)), max_size=40))
def test_repeated_batch_never_gets_two_offsets(
    steps: list[tuple[int, int]],
) -> None:
    """Each step sends the next batch, or repeats an earlier one."""
    manager = _manager()
    sent: list[tuple[BatchHeader, int]] = []
    sequence = MAX_SEQUENCE - 10
    offset = 0
    for back, count in steps:
        if back and back <= len(sent):
            header, first_offset = sent[-back]
            if back <= 5:
                found = manager.check(header, CLIENT)
                assert found is not None
                assert found.first_offset == first_offset
            else:
                with pytest.raises(OutOfOrderSequenceNumber):
                    manager.check(header, CLIENT)
            continue
        header = _header(sequence, count)
        _append(manager, header, offset)
        sent.append((header, offset))
        offset += count
        sequence = (sequence + count) % 2**31
