"""F8: a producer's second batch does not overtake the first, refused by a full disk."""

from __future__ import annotations

import errno

import pytest

from plog.errors import KafkaStorageError, OutOfOrderSequenceNumber
from plog.records.batch import parse_header
from plogd.log.producer_state import MAX_REFUSED, ProducerStateManager
from tests.helpers.log.log_data import client_batch
from tests.helpers.log.log_site import LogSite
from tests.unit.log.test_producer_state import CLIENT, PID
from tests.unit.log.test_producer_state import _append as take
from tests.unit.log.test_producer_state import _header as producer_header
from tests.unit.log.test_producer_state import _manager as producer_manager


class TestFirstBatchRefused:
    """F8: its producer has sent the next ones already, and one of those may fit."""

    def refused(self) -> ProducerStateManager:
        manager = producer_manager()
        assert manager.check(producer_header(0, 9), CLIENT) is None
        manager.note_refused(producer_header(0, 9))
        return manager

    def test_later_batches_are_refused_before_the_refused_one(self) -> None:
        manager = self.refused()
        for sequence in (9, 10, 5):
            with pytest.raises(OutOfOrderSequenceNumber, match="must be sent first"):
                manager.check(producer_header(sequence), CLIENT)
        take(manager, producer_header(0, 9), 100)
        take(manager, producer_header(9), 109)

    def test_producer_with_any_first_sequence_number_continues_there(self) -> None:
        manager = producer_manager()
        manager.note_refused(producer_header(41))
        with pytest.raises(OutOfOrderSequenceNumber):
            manager.check(producer_header(0), CLIENT)
        take(manager, producer_header(41), 100)

    def test_new_epoch_is_not_blocked_by_a_refused_batch(self) -> None:
        manager = self.refused()
        take(manager, producer_header(3, epoch=1), 100)

    def test_other_producers_are_not_blocked_by_a_refused_batch(self) -> None:
        manager = self.refused()
        header = parse_header(client_batch(producer_id=PID + 1, producer_epoch=0, base_sequence=7))
        take(manager, header, 100)

    def test_refused_batch_expires(self) -> None:
        manager = self.refused()
        manager.remove_expired(5)
        manager.remove_expired(manager.expiration_ms + 4)
        with pytest.raises(OutOfOrderSequenceNumber):
            manager.check(producer_header(9), CLIENT)
        manager.remove_expired(manager.expiration_ms + 5)
        assert manager.check(producer_header(9), CLIENT) is None

    def test_number_of_refused_batches_is_bounded(self) -> None:
        manager = producer_manager()
        for number in range(MAX_REFUSED + 1):
            batch = client_batch(producer_id=number, producer_epoch=0, base_sequence=0)
            manager.note_refused(parse_header(batch))
        headers = [
            parse_header(client_batch(producer_id=number, producer_epoch=0, base_sequence=1))
            for number in (0, 1)
        ]
        assert manager.check(headers[0], CLIENT) is None
        with pytest.raises(OutOfOrderSequenceNumber):
            manager.check(headers[1], CLIENT)

    def test_refused_batch_of_a_known_producer_is_not_recorded(self) -> None:
        manager = producer_manager()
        take(manager, producer_header(0, 3), 100)
        manager.note_refused(producer_header(3, 2))
        with pytest.raises(OutOfOrderSequenceNumber, match="sent sequence number 5 after 2"):
            manager.check(producer_header(5), CLIENT)
        take(manager, producer_header(3, 2), 103)


@pytest.mark.parametrize("what", ["append", "create"])
def test_smaller_batch_does_not_overtake_a_refused_one(what: str) -> None:
    """For lack of space for the records, or for their new segment."""
    site = LogSite().start()
    log = site.create("t-0")
    site.fill(log, 5 if what == "create" else 2)  # The next one fills the segment, or does not.
    sent = {"producer_id": PID, "producer_epoch": 0}
    site.files.fail_when(lambda operation: operation.name == what, errno.ENOSPC)
    with pytest.raises(KafkaStorageError):
        site.append(log, 3, value=b"x" * 100, base_sequence=0, **sent)
    site.files.fail_no_more()
    with pytest.raises(OutOfOrderSequenceNumber):
        site.append(log, base_sequence=3, **sent)
    first = site.append(log, 3, value=b"x" * 100, base_sequence=0, **sent)
    second = site.append(log, base_sequence=3, **sent)
    assert second.first_offset == first.last_offset + 1


def test_batch_refused_at_a_start_without_space_is_not_overtaken() -> None:
    site = LogSite().start()
    log = site.create("t-0")
    sent = {"producer_id": PID, "producer_epoch": 0}
    log.refuses_writes = True
    with pytest.raises(KafkaStorageError, match="no disk space to record this broker's leader"):
        site.append(log, base_sequence=0, **sent)
    log.refuses_writes = False
    with pytest.raises(OutOfOrderSequenceNumber):
        site.append(log, base_sequence=1, **sent)
    assert site.append(log, base_sequence=0, **sent).first_offset == 0
    assert site.append(log, base_sequence=1, **sent).first_offset == 1
