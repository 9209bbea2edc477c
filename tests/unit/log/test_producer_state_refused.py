"""F8: the first batch of a producer, refused by a full disk, is not overtaken by its second."""

from __future__ import annotations

import errno

import pytest

from plog.errors import KafkaStorageError, OutOfOrderSequenceNumber
from plog.records.batch import parse_header
from plogd.log.producer_state import MAX_REFUSED, ProducerStateManager
from tests.helpers.log_data import client_batch
from tests.helpers.log_site import LogSite
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

    def test_the_next_ones_are_not_taken_before_it(self) -> None:
        manager = self.refused()
        for sequence in (9, 10, 5):
            with pytest.raises(OutOfOrderSequenceNumber, match="must be sent first"):
                manager.check(producer_header(sequence), CLIENT)
        take(manager, producer_header(0, 9), 100)
        take(manager, producer_header(9), 109)

    def test_one_that_begins_anywhere_goes_on_there(self) -> None:
        manager = producer_manager()
        manager.note_refused(producer_header(41))
        with pytest.raises(OutOfOrderSequenceNumber):
            manager.check(producer_header(0), CLIENT)
        take(manager, producer_header(41), 100)

    def test_a_new_epoch_need_not_wait_for_it(self) -> None:
        manager = self.refused()
        take(manager, producer_header(3, epoch=1), 100)

    def test_other_producers_need_not_either(self) -> None:
        manager = self.refused()
        header = parse_header(client_batch(producer_id=PID + 1, producer_epoch=0, base_sequence=7))
        take(manager, header, 100)

    def test_it_is_forgotten_in_the_end(self) -> None:
        manager = self.refused()
        manager.remove_expired(5)
        manager.remove_expired(manager.expiration_ms + 4)
        with pytest.raises(OutOfOrderSequenceNumber):
            manager.check(producer_header(9), CLIENT)
        manager.remove_expired(manager.expiration_ms + 5)
        assert manager.check(producer_header(9), CLIENT) is None

    def test_so_many_are_remembered_and_no_more(self) -> None:
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

    def test_a_known_producer_waits_by_its_sequence_numbers_alone(self) -> None:
        manager = producer_manager()
        take(manager, producer_header(0, 3), 100)
        manager.note_refused(producer_header(3, 2))
        with pytest.raises(OutOfOrderSequenceNumber, match="sends sequence number 5 after 2"):
            manager.check(producer_header(5), CLIENT)
        take(manager, producer_header(3, 2), 103)


@pytest.mark.parametrize("what", ["append", "create"])
def test_a_batch_that_fits_does_not_overtake_one_that_did_not(what: str) -> None:
    """By want of room for the records, or for the segment they should begin."""
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


def test_no_batch_of_a_start_without_room_is_overtaken() -> None:
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
