"""Coordinator runtime: writes, reads, deferred responses, failures and unloading of shards."""

from __future__ import annotations

import errno

import pytest

from plog.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    KafkaError,
    NonEmptyGroup,
    NotCoordinator,
)
from plogd.coordinator.runtime.coordinator_result import Result
from plogd.coordinator.runtime.shard_runtime import LOAD_RETRY_MS, RecordsTooLarge, ShardState
from plogd.ports import Later
from tests.helpers.coordinator_site import TOPIC, CoordinatorSite, record
from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_ports import outcome


@pytest.fixture
def site() -> CoordinatorSite:
    return CoordinatorSite().start()


def values(site: CoordinatorSite) -> int:
    return int(site.broker.log(TOPIC).log_end_offset)


def test_write_is_visible_immediately_and_answered_when_durable(site: CoordinatorSite) -> None:
    answer = site.set("a", 1)
    assert site.shard.numbers == {"a": 1}
    assert not answer.done
    site.broker.settle()
    assert outcome(answer) == "None"


def test_read_sees_pending_writes_and_waits_until_they_are_durable(site: CoordinatorSite) -> None:
    site.set("a", 1)
    read = site.numbers()
    assert not read.done
    site.broker.settle()
    assert outcome(read) == {"a": 1}


def test_read_is_ready_without_pending_writes(site: CoordinatorSite) -> None:
    assert outcome(site.numbers()) == {}


def test_writes_of_one_turn_are_answered_in_order(site: CoordinatorSite) -> None:
    answers: list[str] = []
    with site.broker.ports.turn:
        for number in range(5):
            site.set("a", number).then(answers.append, pytest.fail)
    site.broker.settle()
    assert answers == ["None", "0", "1", "2", "3"]


def test_records_of_an_operation_form_one_batch(site: CoordinatorSite) -> None:
    records = [record(str(number), number) for number in range(10)]
    answer = site.begin(lambda _: Result(records=records, response=None))
    site.broker.settle()
    outcome(answer)
    fetched = site.broker.fetch(TOPIC)
    assert fetched.high_watermark == 10
    assert int.from_bytes(fetched.records[8:12], "big") + 12 == len(fetched.records)


def test_error_of_an_operation_is_its_answer_and_nothing_is_written(
    site: CoordinatorSite,
) -> None:
    def operation(_: object) -> Result[None]:
        raise NonEmptyGroup

    with pytest.raises(NonEmptyGroup):
        outcome(site.begin(operation))
    assert values(site) == 0


def test_appended_completes_when_the_records_are_durable(
    site: CoordinatorSite,
) -> None:
    appended: Later[None] = Later()
    done: list[str] = []
    appended.then(lambda _: done.append("appended"), pytest.fail)
    result = Result(
        records=[record("a", 1)], response=Later[str](), appended=appended, replay=False
    )
    site.begin(lambda _: result)
    assert site.shard.numbers == {} and done == []
    site.broker.settle()
    assert site.shard.numbers == {} and done == ["appended"]


def test_late_response_is_forwarded(site: CoordinatorSite) -> None:
    response: Later[str] = Later()
    answer = site.begin(lambda _: Result(records=[record("a", 1)], response=response))
    site.broker.settle()
    assert not answer.done
    response.succeed("joined")
    assert outcome(answer) == "joined"


def test_early_response_still_waits_for_the_disk(site: CoordinatorSite) -> None:
    response: Later[str] = Later()
    answer = site.begin(lambda _: Result(records=[record("a", 1)], response=response))
    response.succeed("joined")
    assert not answer.done
    site.broker.settle()
    assert outcome(answer) == "joined"


@pytest.mark.parametrize("is_safe", [True, False])
def test_response_is_cancelled_when_the_client_disconnects(
    site: CoordinatorSite, is_safe: bool
) -> None:
    left: list[str] = []
    response: Later[str] = Later(lambda: left.append("left"))
    answer = site.begin(lambda _: Result(records=[record("a", 1)], response=response))
    if is_safe:
        site.broker.settle()
    answer.cancel()
    assert left == ["left"]
    site.broker.settle()
    assert site.shard.numbers == {"a": 1}


# -- failures ----------------------------------------------------------------------------------


def test_write_is_refused_and_changes_nothing_when_the_disk_is_full(site: CoordinatorSite) -> None:
    site.broker.files.fail_when(lambda op: op.name == "append", errno.ENOSPC)
    with pytest.raises(NotCoordinator, match="cannot write"):
        outcome(site.set("a", 1))
    assert site.shard.numbers == {} and values(site) == 0
    assert outcome(site.numbers()) == {}
    site.broker.files.fail_no_more()
    answer = site.set("a", 2)
    site.broker.settle()
    assert outcome(answer) == "None"
    assert site.shard.numbers == {"a": 2}


def test_operations_continue_and_answers_wait_on_a_slow_disk(site: CoordinatorSite) -> None:
    site.broker.log(TOPIC)._writes.took(50.0)
    first, second = site.set("a", 1), site.set("a", 2)
    assert site.shard.numbers == {"a": 2}
    site.broker.ports.timers.run_due()
    assert not first.done
    site.broker.settle()
    assert [outcome(first), outcome(second)] == ["None", "1"]


def test_shard_reloads_when_a_delayed_write_fails(
    site: CoordinatorSite,
) -> None:
    answer = site.set("a", 1)
    site.broker.settle()
    outcome(answer)
    site.broker.log(TOPIC)._writes.took(50.0)
    lost = [site.set("a", 2), site.set("b", 1)]
    site.broker.files.fail_when(lambda op: op.name == "append", errno.ENOSPC)
    site.broker.ports.jobs.run_all()
    # A lost write must not be visible, even in the same turn.
    with pytest.raises(NotCoordinator):
        outcome(site.numbers())
    site.broker.files.fail_no_more()
    for one in lost:
        with pytest.raises(NotCoordinator):
            outcome(one)
    site.broker.settle()
    assert len(site.made) == 2
    assert outcome(site.numbers()) == {"a": 1}
    answer = site.set("a", 3)
    site.broker.settle()
    assert outcome(answer) == "1"


def test_operation_determines_its_response_when_its_append_fails(
    site: CoordinatorSite,
) -> None:
    site.broker.files.fail_when(lambda op: op.name == "append", errno.ENOSPC)
    response: Later[str] = Later()
    appended: Later[None] = Later()
    appended.then(
        lambda _: pytest.fail("it was not written"),
        lambda error: response.succeed(type(error).__name__),
    )
    answer = site.begin(
        lambda _: Result(records=[record("a", 1)], response=response, appended=appended)
    )
    assert outcome(answer) == "NotCoordinator"


def test_failed_append_cancels_a_pending_response(site: CoordinatorSite) -> None:
    site.broker.files.fail_when(lambda op: op.name == "append", errno.ENOSPC)
    left: list[str] = []
    response: Later[str] = Later(lambda: left.append("left"))
    answer = site.begin(lambda _: Result(records=[record("a", 1)], response=response))
    with pytest.raises(NotCoordinator):
        outcome(answer)
    assert left == ["left"]


def test_records_too_large_for_a_batch_are_refused(site: CoordinatorSite) -> None:
    records = [record(str(number), number, "x" * 30_000) for number in range(40)]
    with pytest.raises(RecordsTooLarge, match=r"max\.message\.bytes"):
        outcome(site.begin(lambda _: Result(records=records, response=None)))
    assert site.shard.numbers == {} and values(site) == 0


def test_encoding_stops_when_the_records_exceed_a_batch(site: CoordinatorSite) -> None:
    impossible = record("no int64", 1 << 70)
    records = [record(str(number), number, "x" * 30_000) for number in range(40)]
    with pytest.raises(RecordsTooLarge, match="41 records"):
        outcome(site.begin(lambda _: Result(records=[*records, impossible], response=None)))


def test_non_atomic_records_are_split_into_batches(
    site: CoordinatorSite,
) -> None:
    records = [record(str(number), number, "x" * 30_000) for number in range(200)]
    answer = site.begin(lambda _: Result(records=records, response="done"), atomic=False)
    assert len(site.shard.numbers) == 200
    site.broker.settle()
    assert outcome(answer) == "done"
    assert values(site) == 200


def test_unencodable_record_is_a_bug_and_writes_nothing(
    site: CoordinatorSite,
) -> None:
    records = [record("a", 1), record("b" * 40_000, 2)]
    answer = site.begin(lambda _: Result(records=records, response=None))
    with pytest.raises(Exception, match="cannot encode OffsetCommitKey version 1"):
        outcome(answer)
    assert values(site) == 0


def test_write_times_out_with_a_retriable_error_when_the_disk_hangs(site: CoordinatorSite) -> None:
    answer = site.set("a", 1)
    site.broker.ports.timers.advance(4_999)
    assert not answer.done
    site.broker.ports.timers.advance(1)
    with pytest.raises(CoordinatorNotAvailable, match=r"offsets\.commit\.timeout\.ms"):
        outcome(answer)
    site.broker.settle()  # The disk was only slow.
    assert outcome(site.numbers()) == {"a": 1}


def test_answers_expire_at_their_own_deadlines(site: CoordinatorSite) -> None:
    first = site.set("a", 1)
    site.broker.ports.timers.advance(3_000)
    second = site.set("a", 2)
    site.broker.ports.timers.advance(2_000)
    assert first.done and not second.done
    site.broker.ports.timers.advance(3_000)
    assert second.done


def test_failed_sync_unloads_the_shard_and_fails_pending_requests(site: CoordinatorSite) -> None:
    answer = site.set("a", 1)
    appended: Later[None] = Later()
    response: Later[str] = Later()
    appended.then(
        lambda _: pytest.fail("it was not written"), lambda _: response.succeed("rolled back")
    )
    joined = site.begin(
        lambda _: Result(records=[record("b", 1)], response=response, appended=appended)
    )
    site.broker.files.fail_when(lambda op: op.name == "sync", errno.EIO)
    site.broker.settle()
    with pytest.raises(NotCoordinator):
        outcome(answer)
    assert outcome(joined) == "rolled back"
    assert site.runtime_of_shard.state is ShardState.CLOSED
    assert isinstance(site.shard.notifications[-1], NotCoordinator)
    for later in (site.set("a", 2), site.numbers()):
        with pytest.raises(NotCoordinator):
            outcome(later)


def test_shard_reloads_when_a_replay_fails(site: CoordinatorSite) -> None:
    site.shard.fails_at = "bad"
    with pytest.raises(NotCoordinator, match="must reload"):
        outcome(site.set("bad", 7))
    with pytest.raises(NotCoordinator):
        outcome(site.numbers())
    assert [type(bug) for _, bug in site.broker.bugs] == [ZeroDivisionError]
    site.broker.ports.advance(LOAD_RETRY_MS)
    assert outcome(site.numbers()) == {"bad": 7}
    assert len(site.made) == 2


def test_error_in_a_continuation_does_not_delay_other_answers(site: CoordinatorSite) -> None:
    def bad(_: object) -> None:
        raise ZeroDivisionError

    site.set("a", 1).then(bad, pytest.fail)
    second = site.set("b", 2)
    site.broker.settle()
    assert outcome(second) == "None"
    assert [type(bug) for _, bug in site.broker.bugs] == [ZeroDivisionError]


# -- loading and unloading ---------------------------------------------------------------------


def test_partition_led_elsewhere_has_no_coordinator(site: CoordinatorSite) -> None:
    with pytest.raises(NotCoordinator, match="does not lead state-7"):
        outcome(site.runtime.read(7, lambda shard: shard.numbers))
    with pytest.raises(NotCoordinator, match="does not lead state-7"):
        outcome(site.runtime.write(7, lambda shard: shard.set("a", 1)))


def test_restart_restores_answered_writes(site: CoordinatorSite) -> None:
    for number in range(20):
        site.set(f"n{number % 3}", number)
    site.broker.settle()
    again = CoordinatorSite(site.broker.restart()).start()
    assert outcome(again.numbers()) == {"n0": 18, "n1": 19, "n2": 17}
    assert again.shard.notifications == ["loaded"]


def test_requests_fail_as_loading_until_the_shard_is_loaded(site: CoordinatorSite) -> None:
    site.set("a", 1)
    site.broker.settle()
    again = CoordinatorSite(site.broker.restart()).lead()
    for later in (again.set("a", 2), again.numbers()):
        with pytest.raises(CoordinatorLoadInProgress):
            outcome(later)
    again.broker.settle()
    assert outcome(again.numbers()) == {"a": 1}


def test_when_loaded_runs_after_the_load_unless_the_shard_closes(
    site: CoordinatorSite,
) -> None:
    site.set("a", 1)
    site.broker.settle()
    again = CoordinatorSite(site.broker.restart()).lead()
    calls: list[str] = []
    shard = again.runtime_of_shard
    shard.when_loaded(lambda: calls.append("first"))
    assert calls == []
    again.broker.settle()
    shard.when_loaded(lambda: calls.append("second"))
    assert calls == ["first", "second"]
    again.runtime.shutdown()
    shard.when_loaded(lambda: calls.append("never"))
    assert calls == ["first", "second"]


def test_shutdown_fails_pending_requests(site: CoordinatorSite) -> None:
    response: Later[str] = Later()
    joined = site.begin(lambda _: Result(records=[record("a", 1)], response=response))
    site.runtime.shutdown()
    with pytest.raises(NotCoordinator, match="stopping"):
        outcome(joined)
    assert str(site.shard.notifications[-1]) == "the broker is stopping"
    site.broker.settle()
    with pytest.raises(NotCoordinator):
        outcome(site.numbers())


def test_deleting_the_topic_unloads_its_shards() -> None:
    site = CoordinatorSite().start()
    site.set("a", 1)
    inner = site.broker.broker
    topic = inner.cache.topic(TOPIC)
    assert topic is not None
    inner.replica_manager.topics.on_topic_stopped = lambda _: site.runtime.topic_stopped()
    inner.controller.delete_topic(TOPIC, topic.topic_id)
    site.broker.settle()
    assert isinstance(site.shard.notifications[-1], KafkaError)
    assert not site.runtime.shards


def test_starting_a_partition_twice_changes_nothing(site: CoordinatorSite) -> None:
    site.set("a", 1)
    site.lead()
    site.broker.settle()
    assert len(site.made) == 1
    assert outcome(site.numbers()) == {"a": 1}


# -- timers ------------------------------------------------------------------------------------


def test_timer_runs_as_a_write(site: CoordinatorSite) -> None:
    shard = site.shard

    def operation() -> Result[None]:
        return Result(records=[record("late", 1)], response=None)

    shard.timers.schedule("k", 1_000, operation)
    assert shard.timers.is_scheduled("k")
    site.broker.ports.advance(999)
    assert shard.numbers == {}
    site.broker.ports.advance(1)
    assert shard.numbers == {"late": 1}
    assert values(site) == 1
    assert not shard.timers.is_scheduled("k")


def test_scheduling_a_key_replaces_its_timer(site: CoordinatorSite) -> None:
    timers, ran = site.shard.timers, list[str]()

    def operation(name: str) -> Result[None]:
        ran.append(name)
        return Result(response=None)

    timers.schedule("k", 1_000, lambda: operation("first"))
    timers.schedule("k", 3_000, lambda: operation("second"))
    timers.schedule("other", 2_000, lambda: operation("other"))
    timers.cancel("other")
    timers.cancel("missing")
    site.broker.ports.advance(10_000)
    assert ran == ["second"]


def test_timers_ignore_jumps_of_the_wall_clock(site: CoordinatorSite) -> None:
    site.shard.timers.schedule("k", 1_000, lambda: Result(records=[record("a", 1)], response=None))
    site.broker.ports.clock.jump_wall(1e9)
    site.broker.settle()
    assert site.shard.numbers == {}
    site.broker.ports.clock.jump_wall(-2e9)
    site.broker.ports.advance(1_000)
    assert site.shard.numbers == {"a": 1}


def test_timer_is_retried_when_its_write_fails(site: CoordinatorSite) -> None:
    site.shard.timers.schedule("k", 10, lambda: Result(records=[record("a", 1)], response=None))
    site.broker.files.fail_when(lambda op: op.name == "append", errno.ENOSPC)
    site.broker.ports.advance(400)
    assert site.shard.timers.is_scheduled("k")
    site.broker.files.fail_no_more()
    site.broker.ports.advance(500)
    assert site.shard.numbers == {"a": 1}
    assert not site.shard.timers.is_scheduled("k")


def test_cancelled_timer_is_not_retried(
    site: CoordinatorSite,
) -> None:
    runs: list[int] = []

    def operation() -> Result[None]:
        runs.append(1)
        return Result(records=[record("a", 1)], response=None)

    site.shard.timers.schedule("k", 10, operation)
    site.broker.ports.timers.advance(10)  # Written, but not durable.
    site.shard.timers.cancel("k")
    site.broker.ports.timers.advance(5_000)  # Too late: the write has failed.
    site.broker.ports.advance(5_000)
    assert len(runs) == 1


def test_error_in_a_timer_is_a_bug_and_is_not_repeated_soon(site: CoordinatorSite) -> None:
    def operation() -> Result[None]:
        raise ZeroDivisionError

    site.shard.timers.schedule("k", 10, operation)
    site.broker.ports.advance(10_000)
    assert [where for where, _ in site.broker.bugs] == ["timer k"]


def test_timers_are_cancelled_with_their_shard(site: CoordinatorSite) -> None:
    timers = site.shard.timers
    timers.schedule("k", 10, lambda: pytest.fail("ran"))
    site.runtime.shutdown()
    timers.schedule("l", 10, lambda: pytest.fail("ran"))
    assert not timers.is_scheduled("l")
    site.broker.ports.advance(1_000)


def test_records_are_compressed_as_configured() -> None:
    site = CoordinatorSite(SimBroker(offsets_topic_compression_codec=4).start()).start()
    site.begin(lambda _: Result(records=[record("a", 1, "x" * 1000)], response=None))
    site.broker.settle()
    assert len(site.broker.fetch(TOPIC).records) < 300
    assert outcome(CoordinatorSite(site.broker.restart()).start().numbers()) == {"a": 1}


def test_state_of_an_earlier_leader_epoch_is_not_used(site: CoordinatorSite) -> None:
    """The same partition object may lead again after another broker has led (rule C5)."""
    answer = site.set("a", 1)
    partition = site.broker.broker.replica_manager.partition(TOPIC, 0)
    partition.leader_epoch += 2
    with pytest.raises(NotCoordinator, match="leader epoch"):
        outcome(site.set("b", 2))
    site.broker.settle()
    with pytest.raises(NotCoordinator, match="leader epoch"):
        outcome(answer)
    assert site.runtime_of_shard.state is ShardState.CLOSED
