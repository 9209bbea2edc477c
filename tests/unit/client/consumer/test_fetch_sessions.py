"""The client side of fetch sessions; test_fetcher.py covers the broker's side."""

from __future__ import annotations

from plog.client.consumer.fetch_plan import WantedPartition
from plog.client.consumer.fetch_sessions import FetchLimits, FetchSession
from plog.client.consumer.partition_state import PartitionState
from plog.errors import ErrorCode
from plog.types import TopicPartition
from plog.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)

LIMITS = FetchLimits(max_wait_ms=500, min_bytes=1, isolation_level=1, rack_id="r")
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def request(
    session: FetchSession, version: int = 12, **offsets: int
) -> tuple[FetchRequest, dict[TopicPartition, int], list[TopicPartition]]:
    """Return the next request for offsets such as `t0=5`: its partitions and its forgotten ones."""
    wanted = {}
    for name, offset in offsets.items():
        partition = TopicPartition(name[0], int(name[1:]))
        state = PartitionState(partition, 1)
        wanted[partition] = WantedPartition(state, 1, offset, 3, 1000)
    made = session.request(wanted, 5000, LIMITS, version=version)
    named = {
        TopicPartition(topic.topic, one.partition): one.fetch_offset
        for topic in made.topics
        for one in topic.partitions
    }
    forgotten = [
        TopicPartition(topic.topic, number)
        for topic in made.forgotten_topics_data
        for number in topic.partitions
    ]
    return made, named, forgotten


def answer(*partitions: TopicPartition, session_id: int = 77, error: int = 0) -> FetchResponse:
    return FetchResponse(
        error_code=error,
        session_id=session_id,
        responses=[
            FetchableTopicResponse(
                topic=one.topic, partitions=[PartitionData(partition_index=one.partition)]
            )
            for one in partitions
        ],
    )


def opened(**offsets: int) -> FetchSession:
    session = FetchSession()
    _, named, _ = request(session, **offsets)
    session.answered(answer(*named))
    return session


def test_first_fetch_names_all_partitions() -> None:
    made, named, forgotten = request(FetchSession(), t0=5, t1=6, u0=7)
    assert (made.session_id, made.session_epoch) == (0, 0)
    assert (named, forgotten) == ({T0: 5, T1: 6, U0: 7}, [])
    assert (made.max_wait_ms, made.min_bytes, made.max_bytes) == (500, 1, 5000)
    assert (made.isolation_level, made.rack_id) == (1, "r")
    assert made.topics[0].partitions[0].current_leader_epoch == 3


def test_later_fetches_name_changed_and_forgotten_partitions() -> None:
    session = opened(t0=5, t1=6)
    made, named, forgotten = request(session, t0=5, u0=1)
    assert (made.session_id, made.session_epoch) == (77, 1)
    assert (named, forgotten) == ({U0: 1}, [T1])
    session.answered(answer())
    made, named, forgotten = request(session, t0=9, u0=1)
    assert (made.session_epoch, named, forgotten) == (2, {T0: 9}, [])


def test_every_fetch_is_full_when_broker_opens_no_session() -> None:
    session = FetchSession()
    request(session, t0=5)
    session.answered(answer(T0, session_id=0))
    made, named, _ = request(session, t0=5)
    assert (made.session_id, made.session_epoch, named) == (0, 0, {T0: 5})


def test_unknown_session_is_reopened() -> None:
    session = opened(t0=5)
    request(session, t0=5)
    session.answered(answer(error=ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    made, named, _ = request(session, t0=5)
    assert (made.session_id, made.session_epoch, named) == (0, 0, {T0: 5})


def test_full_fetch_closes_old_session_after_lost_response() -> None:
    for lose in (FetchSession.failed, _refused):
        session = opened(t0=5)
        request(session, t0=5)
        lose(session)
        made, named, _ = request(session, t0=5)
        assert (made.session_id, made.session_epoch, named) == (77, 0, {T0: 5})


def _refused(session: FetchSession) -> None:
    session.answered(answer(error=ErrorCode.INVALID_FETCH_SESSION_EPOCH))


def test_unrequested_partition_ends_session() -> None:
    session = opened(t0=5)
    request(session, t0=5)
    session.answered(answer(U0))
    made, _, _ = request(session, t0=5)
    assert (made.session_id, made.session_epoch) == (77, 0)


def test_incomplete_first_response_ends_session() -> None:
    session = FetchSession()
    request(session, t0=5, t1=5)
    session.answered(answer(T0))
    made, named, _ = request(session, t0=5, t1=5)
    assert (made.session_id, made.session_epoch, len(named)) == (77, 0, 2)


def test_epoch_wraps_around() -> None:
    session = opened(t0=5)
    session.epoch = 0x7FFFFFFF
    request(session, t0=5)
    session.answered(answer())
    made, _, _ = request(session, t0=5)
    assert made.session_epoch == 1


def test_old_broker_gets_no_session() -> None:
    session = opened(t0=5)
    made, named, forgotten = request(session, version=6, t0=5)
    assert (made.session_id, made.session_epoch) == (0, -1)
    assert (named, forgotten) == ({T0: 5}, [])


def test_closing_request_names_the_session() -> None:
    assert FetchSession().closing_request() is None
    closing = opened(t0=5).closing_request()
    assert closing is not None
    assert (closing.session_id, closing.session_epoch, closing.topics) == (77, -1, [])
