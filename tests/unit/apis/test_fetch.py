"""Fetch: requests and responses as frames."""

from __future__ import annotations

from typing import Any

import pytest

from plog.errors import ErrorCode
from plog.records.batch import iter_batches
from plog.types import ZERO_UUID
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from plogd.log.segment.file_records import FileRegion
from tests.helpers.sim.sim_broker import SimBroker, create_topic, fetch_request, produce_request


def make(partitions: int = 2, **config: Any) -> SimBroker:
    broker = SimBroker().start()
    create_topic(broker, "t", partitions, **config)
    return broker


def id_of(broker: SimBroker, topic: str = "t") -> bytes:
    state = broker.broker.cache.topic(topic)
    assert state is not None
    return state.topic_id


def by_id(request: FetchRequest, topic_id: bytes) -> FetchRequest:
    for topic in request.topics:
        topic.topic, topic.topic_id = "", topic_id
    return request


@pytest.mark.parametrize("version", range(4, 19))
def test_records_are_fetched_as_produced_in_every_version(version: int) -> None:
    broker = make()
    broker.produce("t", b"a", b"b")
    request = fetch_request("t", 0)
    if version >= 13:
        by_id(request, id_of(broker))
    answer = broker.ask(request, version)
    assert (answer.error_code, answer.session_id) == (0, 0)
    [topic] = answer.responses
    assert topic.topic == ("t" if version < 13 else "")
    assert topic.topic_id == (ZERO_UUID if version < 13 else id_of(broker))
    [partition] = topic.partitions
    assert (partition.error_code, partition.high_watermark, partition.last_stable_offset) == (
        0,
        2,
        2,
    )
    assert partition.log_start_offset == (-1 if version < 5 else 0)
    assert partition.preferred_read_replica == -1
    [(_, header)] = iter_batches(partition.records)
    assert (header.base_offset, header.records_count, header.partition_leader_epoch) == (0, 2, 0)


def test_records_are_sent_as_a_region_of_the_log_file() -> None:
    broker = make()
    broker.produce("t", b"a")
    parts = broker.begin(fetch_request("t"), 11).parts()
    regions = [part for part in parts if isinstance(part, FileRegion)]
    assert len(regions) == 1
    regions[0].close()


@pytest.mark.parametrize("isolation_level", [0, 1])
def test_aborted_transactions_are_listed_for_read_committed_only(isolation_level: int) -> None:
    broker = make()
    broker.produce("t", b"a")
    answer = broker.fetch("t", isolation_level=isolation_level)
    assert answer.aborted_transactions == ([] if isolation_level else None)


class TestOffsets:
    """F38: offsets inside a batch, at the end, after it and before the start."""

    def test_offset_inside_a_batch_returns_the_whole_batch(self) -> None:
        broker = make()
        broker.produce("t", b"a", b"b", b"c")
        [(_, header)] = iter_batches(broker.fetch("t", 2).records)
        assert header.base_offset == 0

    @pytest.mark.parametrize(("offset", "code"), [(0, 0), (1, 1), (-1, 1), (2**62, 1)])
    def test_empty_partition_has_one_valid_offset(self, offset: int, code: int) -> None:
        answer = make_empty().fetch("t", offset)
        assert answer.error_code == code
        assert answer.high_watermark == (-1 if code else 0)
        assert len(answer.records) == 0

    def test_fetch_at_the_end_returns_no_records(self) -> None:
        broker = make()
        broker.produce("t", b"a")
        answer = broker.fetch("t", 1)
        assert (answer.error_code, answer.high_watermark, len(answer.records)) == (0, 1, 0)


def make_empty() -> SimBroker:
    return make()


class TestLongPoll:
    """Fetches that wait for data."""

    def test_fetch_waits_until_records_are_durable(self) -> None:
        broker = make()
        asked = broker.begin(fetch_request("t", max_wait_ms=500), 11)
        broker.settle()
        assert not asked.is_done
        broker.begin(produce_request("t", b"a"), 9)
        assert not asked.is_done
        broker.settle()
        [partition] = asked.response().responses[0].partitions
        assert partition.high_watermark == 1
        assert len(partition.records) > 0

    def test_wait_ends_after_max_wait_ms(self) -> None:
        broker = make()
        asked = broker.begin(fetch_request("t", max_wait_ms=500), 11)
        broker.ports.advance(499)
        assert not asked.is_done
        broker.ports.advance(11)
        [partition] = asked.response().responses[0].partitions
        assert (partition.error_code, len(partition.records)) == (0, 0)

    def test_min_bytes_0_does_not_wait(self) -> None:
        asked = make().begin(fetch_request("t", max_wait_ms=500, min_bytes=0), 11)
        assert asked.is_done

    def test_min_bytes_above_max_bytes_waits_for_max_bytes(self) -> None:
        broker = make()
        request = fetch_request("t", max_wait_ms=500, min_bytes=10_000, max_bytes=50)
        asked = broker.begin(request, 11)
        broker.produce("t", b"a")
        broker.settle()
        assert asked.is_done

    def test_fetch_without_partitions_does_not_wait(self) -> None:
        asked = make().begin(FetchRequest(max_wait_ms=500, min_bytes=1), 11)
        assert asked.response().responses == []

    def test_fetch_of_a_disconnected_client_is_removed(self) -> None:
        broker = make()
        asked = broker.begin(fetch_request("t", max_wait_ms=500), 11)
        asked.cancel()
        assert len(broker.broker.replica_manager.delayed_fetches) == 0


class TestLimits:
    """Size limits of responses (F39, KIP-74)."""

    def two_batches(self) -> tuple[SimBroker, int]:
        broker = make()
        broker.produce("t", b"a" * 500)
        size = len(broker.fetch("t").records)
        broker.produce("t", b"b" * 500)
        return broker, size

    @pytest.mark.parametrize("field", ["partition_max_bytes", "max_bytes"])
    def test_first_batch_is_returned_whole(self, field: str) -> None:
        broker, size = self.two_batches()
        answer = broker.fetch("t", **{field: 1})
        assert len(answer.records) == size

    @pytest.mark.parametrize("field", ["partition_max_bytes", "max_bytes"])
    def test_response_has_no_more_than_max_bytes(self, field: str) -> None:
        broker, size = self.two_batches()
        answer = broker.fetch("t", **{field: size + 10})
        assert size <= len(answer.records) <= size + 10

    def test_broker_setting_limits_the_response(self) -> None:
        broker = SimBroker(fetch_max_bytes=1024).start()
        create_topic(broker, "t")
        for _ in range(5):
            broker.produce("t", b"a" * 500)
        assert len(broker.fetch("t").records) <= 1024


class TestEpochs:
    """Leader epochs (KIP-320)."""

    @pytest.mark.parametrize(
        ("epoch", "code"),
        [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, 0), (-1, 0)],
    )
    def test_leader_epoch_must_match(self, epoch: int, code: int) -> None:
        broker = make()
        broker.stop()
        again = broker.restart()
        answer = again.fetch("t", current_leader_epoch=epoch)
        assert answer.error_code == code

    def test_fenced_client_receives_the_current_epoch(self) -> None:
        broker = make()
        broker.stop()
        again = broker.restart()
        answer = again.fetch("t", current_leader_epoch=0, version=12)
        assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (1, 1)

    def test_diverging_epoch_is_reported(self) -> None:
        broker = make()
        broker.produce("t", b"a", b"b")
        broker.stop()
        again = broker.restart()
        again.produce("t", b"c")
        request = fetch_request("t", 3)
        request.topics[0].partitions[0].last_fetched_epoch = 0
        answer = again.ask(request, 12).responses[0].partitions[0]
        assert (answer.diverging_epoch.epoch, answer.diverging_epoch.end_offset) == (0, 2)
        assert len(answer.records) == 0


class TestSessions:
    """Fetch sessions (KIP-227)."""

    def session_request(self, session_id: int, epoch: int, *partitions: int) -> FetchRequest:
        return FetchRequest(
            session_id=session_id,
            session_epoch=epoch,
            topics=[
                FetchTopic(
                    topic="t",
                    partitions=[
                        FetchPartition(partition=number, partition_max_bytes=1000)
                        for number in partitions
                    ],
                )
            ]
            if partitions
            else [],
        )

    def test_session_response_has_only_new_data(self) -> None:
        broker = make()
        first = broker.ask(self.session_request(0, 0, 0, 1), 11)
        assert first.session_id > 0
        assert len(first.responses[0].partitions) == 2
        quiet = broker.ask(self.session_request(first.session_id, 1), 11)
        assert (quiet.session_id, quiet.responses) == (first.session_id, [])
        broker.produce("t", b"a", partition=1)
        news = broker.ask(self.session_request(first.session_id, 2), 11)
        [partition] = news.responses[0].partitions
        assert (partition.partition_index, partition.high_watermark) == (1, 1)

    def test_session_wait_ends_with_data_of_any_partition(self) -> None:
        broker = make()
        session_id = broker.ask(self.session_request(0, 0, 0, 1), 11).session_id
        request = self.session_request(session_id, 1)
        request.max_wait_ms, request.min_bytes = 500, 1
        asked = broker.begin(request, 11)
        broker.produce("t", b"a", partition=1)
        [partition] = asked.response().responses[0].partitions
        assert partition.partition_index == 1

    def test_forgotten_partitions_are_not_read(self) -> None:
        broker = make()
        session_id = broker.ask(self.session_request(0, 0, 0, 1), 11).session_id
        request = self.session_request(session_id, 1)
        request.forgotten_topics_data = [ForgottenTopic(topic="t", partitions=[1])]
        broker.produce("t", b"a", partition=1)
        assert broker.ask(request, 11).responses == []

    @pytest.mark.parametrize(
        ("session_id", "epoch", "code"),
        [
            (12345, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (None, 7, ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ],
    )
    def test_invalid_session_id_or_epoch_is_an_error(
        self, session_id: int | None, epoch: int, code: int
    ) -> None:
        broker = make()
        known = broker.ask(self.session_request(0, 0, 0), 11).session_id
        answer = broker.ask(self.session_request(session_id or known, epoch), 11)
        assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])

    def test_session_by_name_cannot_continue_by_id(self) -> None:
        broker = make()
        session_id = broker.ask(self.session_request(0, 0, 0), 12).session_id
        answer = broker.ask(self.session_request(session_id, 1), 13)
        assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR

    def test_sessionless_fetch_opens_no_session(self) -> None:
        broker = make()
        assert broker.ask(self.session_request(0, -1, 0), 11).session_id == 0
        assert len(broker.broker.fetch_sessions) == 0

    def test_response_of_a_replaced_session_closes_its_files(self) -> None:
        broker = make()
        session_id = broker.ask(self.session_request(0, 0, 0), 11).session_id
        waiting = self.session_request(session_id, 1)
        waiting.max_wait_ms, waiting.min_bytes = 500, 1
        asked = broker.begin(waiting, 11)
        broker.ask(self.session_request(session_id, 2), 11)
        broker.produce("t", b"a")
        answer = asked.response()
        assert answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        assert answer.responses == []


class TestMissingTopics:
    """Unknown, deleted and recreated topics (F26)."""

    def test_unknown_topic_name_or_id_is_an_error(self) -> None:
        broker = make()
        answer = broker.fetch("nobody")
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        answer = broker.ask(by_id(fetch_request("t"), b"?" * 16), 13)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert answer.responses[0].topic_id == b"?" * 16

    def test_recreated_topic_is_not_read_by_its_old_id(self) -> None:
        broker = make()
        broker.produce("t", b"old")
        old_id = id_of(broker)
        broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        create_topic(broker, "t")
        broker.produce("t", b"new")
        answer = broker.ask(by_id(fetch_request("t"), old_id), 13)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert b"new" in broker.fetch("t").records.tobytes()

    def test_session_by_id_reports_an_error_after_topic_deletion(self) -> None:
        broker = make()
        request = by_id(fetch_request("t", session_epoch=0), id_of(broker))
        session_id = broker.ask(request, 13).session_id
        broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        create_topic(broker, "t")
        broker.produce("t", b"new")
        answer = broker.ask(FetchRequest(session_id=session_id, session_epoch=1), 13)
        assert answer.responses[0].partitions[0].error_code == ErrorCode.INCONSISTENT_TOPIC_ID

    def test_metadata_log_cannot_be_fetched(self) -> None:
        answer = SimBroker().start().fetch("__cluster_metadata")
        assert answer.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [14, 15])
def test_fetch_from_a_follower_is_refused(version: int) -> None:
    broker = make()
    request = by_id(fetch_request("t"), id_of(broker))
    if version >= 15:
        request.replica_state = ReplicaState(replica_id=2, replica_epoch=1)
    else:
        request.replica_id = 2
    answer = broker.ask(request, version)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(("version", "code"), [(9, 76), (10, 0)])
def test_zstd_topic_is_refused_for_old_versions(version: int, code: int) -> None:
    broker = make(compression_type="zstd")
    broker.produce("t", b"a")
    answer = broker.fetch("t", version=version)
    assert (answer.error_code, len(answer.records) > 0) == (code, code == 0)


def test_zstd_by_broker_setting_is_refused_for_old_versions() -> None:
    broker = SimBroker(compression_type="zstd").start()
    create_topic(broker, "t")
    broker.produce("t", b"a")
    answer = broker.fetch("t", version=9)
    assert answer.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


@pytest.mark.parametrize(("version", "code"), [(5, 6), (6, 56)])
def test_storage_error_is_replaced_for_old_versions(version: int, code: int) -> None:
    broker = make()
    broker.broker.replica_manager.partition("t", 0).log.go_offline()
    assert broker.fetch("t", version=version).error_code == code


def test_topics_are_grouped_as_requested() -> None:
    broker = make()
    create_topic(broker, "u")
    request = FetchRequest(
        topics=[
            FetchTopic(topic="u", partitions=[FetchPartition(partition_max_bytes=10)]),
            FetchTopic(
                topic="t",
                partitions=[
                    FetchPartition(partition=1, partition_max_bytes=10),
                    FetchPartition(partition=0, partition_max_bytes=10),
                ],
            ),
        ]
    )
    answer = broker.ask(request, 11)
    actual = [(t.topic, [p.partition_index for p in t.partitions]) for t in answer.responses]
    assert actual == [("u", [0]), ("t", [1, 0])]


def test_records_that_could_be_lost_are_never_read() -> None:
    broker = make()
    broker.produce("t", b"safe")
    broker.begin(produce_request("t", b"unsafe"), 9)
    answer = broker.begin(fetch_request("t"), 11).response().responses[0].partitions[0]
    assert b"unsafe" not in answer.records.tobytes()
    assert answer.high_watermark == 1
