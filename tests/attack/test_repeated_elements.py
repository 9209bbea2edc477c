"""Requests that repeat an element tens of thousands of times: it must be handled once."""

from __future__ import annotations

from contextlib import ExitStack

from plog.records.batch import Compression
from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from plog.wire.messages.describe_producers import DescribeProducersRequest, TopicRequest
from plog.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from plog.wire.messages.find_coordinator import FindCoordinatorRequest
from plog.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from plog.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from plog.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from plog.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from tests.attack.conftest import Attack
from tests.attack.frames import (
    PRODUCE_VERSION,
    create_topic,
    now_ms,
    produce,
    produce_request,
    response_size,
    small_batch,
)
from tests.attack.probe import PROBE_TOPIC
from tests.attack.target import Target
from tests.fault.peers import request_frame

_JUST_ALLOWED = 49_000
_SMALL_BYTES = 8 << 20
"""More than any correct response here, and a fraction of one that repeats the element."""


def _fetch(
    partitions: list[FetchPartition], topic: str = PROBE_TOPIC, **fields: int
) -> FetchRequest:
    return FetchRequest(topics=[FetchTopic(topic=topic, partitions=partitions)], **fields)


def _first(partition_max_bytes: int = 200) -> FetchPartition:
    return FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=partition_max_bytes)


def test_parked_fetches_of_one_partition_49000_times(target: Target, attack: Attack) -> None:
    """Each append to the partition wakes them."""
    waiting = _fetch([_first()] * _JUST_ALLOWED, max_wait_ms=60_000, min_bytes=1 << 30)
    frame = request_frame(waiting, 4)
    with attack(), ExitStack() as stack:
        for _ in range(4):
            stack.enter_context(target.connect()).send(frame)
        with target.connect() as other:
            for _ in range(20):
                assert produce(other, PROBE_TOPIC, small_batch()) == [0]


def test_waiting_fetches_of_49000_missing_partitions_on_4_connections(
    target: Target, attack: Attack
) -> None:
    """Two of them wait for data; the others get their responses immediately."""
    missing = [FetchPartition(partition=number) for number in range(1, _JUST_ALLOWED)]
    partitions = [_first(), *missing]
    waiting = _fetch(partitions, max_wait_ms=300, min_bytes=1 << 30)
    frame = request_frame(waiting, 4)
    with attack(), ExitStack() as stack:
        peers = [stack.enter_context(target.connect()) for _ in range(4)]
        for peer in peers:
            peer.send(frame)
        for peer in peers:
            peer.response()


def test_fetch_of_one_partition_49000_times(target: Target, attack: Attack) -> None:
    create_topic(target, "read")
    with target.connect() as peer:
        produce(peer, "read", small_batch(bytes(500_000)))
        frame = request_frame(_fetch([_first(1 << 20)] * _JUST_ALLOWED, "read"), 4)
        with attack():
            nbytes = response_size(peer, frame)
            assert nbytes is not None
            assert nbytes < _SMALL_BYTES, f"a response of {nbytes:,} bytes"


def test_produces_of_one_partition_49000_times(target: Target, attack: Attack) -> None:
    """Without records, so that each request is small and almost all of its cost is decoding."""
    create_topic(target, "produced-to")
    request = produce_request("produced-to", *[b""] * _JUST_ALLOWED)
    frame = request_frame(request, PRODUCE_VERSION)
    with attack(), ExitStack() as stack:
        peers = [stack.enter_context(target.connect()) for _ in range(3)]
        for peer in peers:
            peer.send(frame)
        for peer in peers:
            assert len(peer.response()) < 100 * _JUST_ALLOWED


def test_metadata_of_49000_missing_topics_on_4_connections(target: Target, attack: Attack) -> None:
    topics = [MetadataRequestTopic(name=f"missing-{number}") for number in range(_JUST_ALLOWED)]
    frame = request_frame(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 4)
    with attack(), ExitStack() as stack:
        peers = [stack.enter_context(target.connect()) for _ in range(4)]
        for peer in peers:
            peer.send(frame)
        for peer in peers:
            peer.response()


def test_fetch_session_that_grows_by_missing_partitions(target: Target, attack: Attack) -> None:
    count = 45_000
    with attack(), target.connect() as peer:
        opened = peer.request(_fetch([_first()], session_epoch=0), 7)
        assert isinstance(opened, FetchResponse)
        session: dict[str, int] = {"session_id": opened.session_id}
        for epoch in range(1, 7):
            missing = [FetchPartition(partition=epoch * count + n) for n in range(count)]
            response_size(peer, request_frame(_fetch(missing, session_epoch=epoch, **session), 7))
        nothing = FetchRequest(session_epoch=7, session_id=opened.session_id)
        for _ in range(3):
            nbytes = response_size(peer, request_frame(nothing, 7))
            assert nbytes is None or nbytes < _SMALL_BYTES, f"a response of {nbytes:,} bytes"


def test_fetch_sessions_opened_3000_times(target: Target, attack: Attack) -> None:
    opening = request_frame(_fetch([_first()], session_epoch=0), 7)
    with attack(), target.connect() as peer:
        for _ in range(30):
            peer.send(opening * 100)
            for _ in range(100):
                peer.response()


def test_offset_fetch_of_one_partition_49000_times(target: Target, attack: Attack) -> None:
    """The offset has 12 KB of metadata; some of the responses are not read."""
    create_topic(target, "committed")
    metadata = "\N{CJK UNIFIED IDEOGRAPH-6F22}" * 4_096
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=metadata
    )
    topic = OffsetCommitRequestTopic(name="committed", partitions=[partition])
    commit = OffsetCommitRequest(group_id="large", generation_id_or_member_epoch=-1, topics=[topic])
    repeated = OffsetFetchRequestTopic(name="committed", partition_indexes=[0] * _JUST_ALLOWED)
    frame = request_frame(OffsetFetchRequest(group_id="large", topics=[repeated]), 1)
    with target.connect() as peer:
        peer.request(FindCoordinatorRequest(key="large"), 0)
        peer.request(commit, 5)
    with attack(), ExitStack() as stack:
        for _ in range(5):
            stack.enter_context(target.connect(receive_buffer=4096)).send(frame)
        nbytes = response_size(stack.enter_context(target.connect()), frame)
        assert nbytes is None or nbytes < _SMALL_BYTES, f"a response of {nbytes:,} bytes"


def test_describe_producers_of_one_partition_20000_times(target: Target, attack: Attack) -> None:
    create_topic(target, "produced")
    with target.connect() as peer:
        for number in range(100):
            record = Record(timestamp=now_ms(), value=b"x")
            batch = build_batch(
                [record], producer_id=10**6 + number, producer_epoch=0, base_sequence=0
            )
            assert produce(peer, "produced", batch) == [0]
        topics = [TopicRequest(name="produced", partition_indexes=[0] * 20_000)]
        frame = request_frame(DescribeProducersRequest(topics=topics), 0)
        with attack():
            nbytes = response_size(peer, frame)
            assert nbytes is None or nbytes < _SMALL_BYTES, f"a response of {nbytes:,} bytes"


def test_offset_commit_of_one_partition_40000_times(target: Target, attack: Attack) -> None:
    """20 MB of metadata, of which one offset's may remain."""
    create_topic(target, "committed-often")
    partition = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata="m" * 500
    )
    topic = OffsetCommitRequestTopic(name="committed-often", partitions=[partition] * 40_000)
    commit = OffsetCommitRequest(group_id="often", generation_id_or_member_epoch=-1, topics=[topic])
    frame = request_frame(commit, 5)
    with target.connect() as peer:
        peer.request(FindCoordinatorRequest(key="often"), 0)
        with attack():
            for _ in range(2):
                response_size(peer, frame)


def test_offset_lookups_by_time_in_a_batch_of_many_records(target: Target, attack: Attack) -> None:
    """Each reads hundreds of thousands of records; another client does not wait for all of them."""
    create_topic(target, "timed")
    create_topic(target, "innocent")
    stamp = now_ms()
    tiny = [Record(timestamp=stamp)] * 300_000
    batch = build_batch([*tiny, Record(timestamp=stamp + 1)], compression=Compression.ZSTD)

    def by_time(topic: str) -> ListOffsetsRequest:
        partition = ListOffsetsPartition(partition_index=0, timestamp=stamp + 1)
        return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=[partition])])

    with target.connect() as peer:
        assert produce(peer, "timed", batch) == [0]
        assert produce(peer, "innocent", small_batch()) == [0]
        with attack(), ExitStack() as stack:
            for _ in range(15):
                stack.enter_context(target.connect()).send(request_frame(by_time("timed"), 7))
            peer.request(by_time("innocent"), 7)


def test_delete_topics_and_lookups_of_their_offsets(target: Target, attack: Attack) -> None:
    """Deleting a topic does not wait for lookups of clients that have disconnected."""
    create_topic(target, "short-lived")
    stamp = now_ms()
    tiny = [Record(timestamp=stamp)] * 300_000
    batch = build_batch([*tiny, Record(timestamp=stamp + 1)], compression=Compression.ZSTD)
    partition = ListOffsetsPartition(partition_index=0, timestamp=stamp + 1)
    topic = ListOffsetsTopic(name="short-lived", partitions=[partition])
    frame = request_frame(ListOffsetsRequest(topics=[topic]), 7)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name="short-lived")], timeout_ms=30_000)
    with target.connect() as peer:
        assert produce(peer, "short-lived", batch) == [0]
        with attack():
            for _ in range(15):
                with target.connect() as leaving:
                    leaving.send(frame)
            peer.request(deletion, 6)
