"""The pytest plugin as an application uses it: test files, each run by its own pytest."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

Run = Callable[..., pytest.RunResult]

CONFLUENT = """
from confluent_kafka import Consumer, Producer


def send(broker, topic, *values, **settings):
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 0, **settings})
    errors = []
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, message: errors.append(error))
    producer.flush(60)
    return errors


def receive(broker, topic, count, **settings):
    consumer = Consumer({
        "bootstrap.servers": broker.bootstrap_servers,
        "group.id": "tests",
        "auto.offset.reset": "earliest",
        **settings,
    })
    consumer.subscribe([topic])
    try:
        return [message.value() for message in consumer.consume(count, 30)]
    finally:
        consumer.close()
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    def run(source: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(shared=CONFLUENT)
        path = pytester.makepyfile(source)
        return pytester.runpytest_subprocess(
            "-p", "plogd.testing.plugin", "-p", "no:cacheprovider", *arguments, path, timeout=120
        )

    return run


both = pytest.mark.parametrize("kind", ["thread", "process"])


@both
def test_confluent_kafka_produces_and_consumes(run: Run, kind: str) -> None:
    result = run(
        """
        import pytest
        from shared import receive, send

        @pytest.mark.plog_topic("orders", partitions=1)
        def test_orders_arrive(plog_broker):
            assert send(plog_broker, "orders", b"one", b"two") == [None, None]
            assert receive(plog_broker, "orders", 2) == [b"one", b"two"]

        def test_a_lost_acknowledgement_makes_no_duplicate(plog_broker, plog_topic):
            hook = plog_broker.hooks.drop("Produce", after=True)
            assert send(plog_broker, plog_topic, b"once", **{"enable.idempotence": True}) == [None]
            assert hook.hits == 1
            assert receive(plog_broker, plog_topic, 1) == [b"once"]

        def test_a_record_that_is_refused_is_reported(plog_broker, plog_topic):
            from plog.errors import TopicAuthorizationFailed
            plog_broker.hooks.fail("Produce", TopicAuthorizationFailed)
            [error] = send(plog_broker, plog_topic, b"x")
            assert error.name() == "TOPIC_AUTHORIZATION_FAILED"
        """,
        f"--plog-broker={kind}",
    )
    result.assert_outcomes(passed=3)


@both
def test_kafka_python_produces_and_consumes(run: Run, kind: str) -> None:
    result = run(
        """
        from kafka import KafkaConsumer, KafkaProducer, TopicPartition

        def test_records_are_read_back(plog_broker, plog_topic):
            servers = plog_broker.bootstrap_servers
            hook = plog_broker.hooks.delay("Fetch", 0.1, topic=plog_topic)
            producer = KafkaProducer(bootstrap_servers=servers)
            producer.send(plog_topic, b"hello").get(60)
            producer.close()
            consumer = KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest")
            consumer.assign([TopicPartition(plog_topic, 0)])
            assert next(consumer).value == b"hello"
            assert hook.hits == 1
            consumer.close()
        """,
        f"--plog-broker={kind}",
    )
    result.assert_outcomes(passed=1)


@both
def test_silent_member_loses_its_session_after_time_advances(run: Run, kind: str) -> None:
    result = run(
        """
        from confluent_kafka import Consumer
        from confluent_kafka.admin import AdminClient

        def members(broker):
            admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
            return admin.describe_consumer_groups(["g"])["g"].result(60).members

        def test_sessions_expire(plog_broker, plog_topic):
            consumer = Consumer({
                "bootstrap.servers": plog_broker.bootstrap_servers, "group.id": "g",
                "session.timeout.ms": 45000, "heartbeat.interval.ms": 40000,
            })
            joined = []
            consumer.subscribe([plog_topic], on_assign=lambda *_: joined.append(1))
            while not joined:
                consumer.poll(1)
            assert len(members(plog_broker)) == 1
            plog_broker.advance_time(40)
            assert len(members(plog_broker)) == 1
            plog_broker.advance_time(10)
            assert len(members(plog_broker)) == 0
            consumer.close()
        """,
        f"--plog-broker={kind}",
    )
    result.assert_outcomes(passed=1)


def test_hundred_tests_share_a_broker_with_a_fresh_topic_each(run: Run) -> None:
    result = run(
        """
        import pytest
        from shared import send

        names = []

        @pytest.mark.parametrize("n", range(100))
        def test_one(plog_session_broker, plog_topic, n):
            assert plog_topic not in names
            names.append(plog_topic)
            assert (plog_session_broker.data_dir / f"{plog_topic}-0").is_dir()
        """
    )
    result.assert_outcomes(passed=100)


def test_topic_marker_creates_topics(run: Run) -> None:
    result = run(
        """
        import pytest

        def partitions(broker, name):
            return len(list(broker.data_dir.glob(f"{name}-[0-9]")))

        @pytest.mark.plog_topic("orders", partitions=3, config={"retention.ms": 1000})
        @pytest.mark.plog_topic("refunds")
        class TestShop:
            def test_all_are_there(self, plog_session_broker, plog_topics, plog_topic):
                assert plog_topics == {"orders": "orders", "refunds": "refunds"}
                assert plog_topic == "orders"
                assert partitions(plog_session_broker, "orders") == 3
                assert partitions(plog_session_broker, "refunds") == 1

            def test_they_are_there_afresh(self, plog_session_broker):
                assert partitions(plog_session_broker, "orders") == 3

            def test_they_are_on_the_tests_own_broker(self, plog_broker):
                assert partitions(plog_broker, "orders") == 3

        @pytest.mark.plog_topic("orders", unique=True)
        def test_a_unique_name(plog_session_broker, plog_topics):
            assert plog_topics["orders"].startswith("orders-")
            assert partitions(plog_session_broker, plog_topics["orders"]) == 1

        @pytest.mark.plog_topic(partitions=2)
        def test_any_name(plog_session_broker, plog_topic):
            assert plog_topic.startswith("any_name-")
            assert partitions(plog_session_broker, plog_topic) == 2

        @pytest.mark.plog_topic("only")
        def test_without_a_fixture():
            pass
        """,
        "--strict-markers",
    )
    result.assert_outcomes(passed=6)


def test_unknown_marker_argument_is_reported(run: Run) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.plog_topic("orders", partition=3)
        def test_one():
            pass
        """
    )
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*@pytest.mark.plog_topic*unexpected keyword*partition*"])


def test_hooks_of_a_shared_broker_end_with_their_test(run: Run) -> None:
    result = run(
        """
        from shared import send

        def test_one(plog_session_broker, plog_topic):
            plog_session_broker.hooks.drop("Produce", times=None)

        def test_two(plog_session_broker, plog_topic):
            assert send(plog_session_broker, plog_topic, b"x") == [None]
        """
    )
    result.assert_outcomes(passed=2)


@both
def test_bug_of_the_broker_is_an_error_of_the_test(run: Run, kind: str) -> None:
    bug = "2026-01-31T12:00:00.000Z CRITICAL plogd.service: unexpected error: Fetch\\n"
    result = run(
        f"""
        def test_shared(plog_session_broker):
            with plog_session_broker.log_path.open("a") as log:
                log.write({bug!r})

        def test_after(plog_session_broker):
            pass

        def test_own(plog_broker):
            with plog_broker.log_path.open("a") as log:
                log.write({bug!r})

        def test_made(plog_broker_factory):
            with plog_broker_factory().log_path.open("a") as log:
                log.write({bug!r})
        """,
        f"--plog-broker={kind}",
    )
    result.assert_outcomes(passed=4, errors=3)
    result.stdout.fnmatch_lines(["*the broker reports a bug*", "*unexpected error: Fetch*"])


def test_broker_that_exits_is_an_error_of_the_test(run: Run) -> None:
    result = run(
        """
        import os, signal, shutil
        import pytest
        from shared import send

        @pytest.mark.plog_broker("process")
        def test_process(plog_broker):
            os.kill(plog_broker.pid, signal.SIGKILL)

        def test_thread(plog_broker):
            plog_broker._run.soon(lambda: plog_broker._run.service._all_log_dirs_failed())
            plog_broker._run.thread.join(60)
        """
    )
    result.assert_outcomes(passed=2, errors=2)
    result.stdout.fnmatch_lines(["*stopped with code -9*", "*stopped with code 1*"])


def test_broker_marker_selects_kind_and_settings(run: Run) -> None:
    result = run(
        """
        import pytest

        @pytest.mark.plog_broker("process", settings={"num.partitions": "4"})
        def test_process(plog_broker):
            assert plog_broker.pid

        def test_thread(plog_broker):
            assert not hasattr(plog_broker, "pid")

        def test_both(plog_broker_factory):
            one, two = plog_broker_factory(), plog_broker_factory({}, kind="process")
            assert one.bootstrap_servers != two.bootstrap_servers
            assert two.pid
        """
    )
    result.assert_outcomes(passed=3)


def test_ini_file_selects_the_kind_and_a_wrong_kind_is_reported(
    run: Run, pytester: pytest.Pytester
) -> None:
    pytester.makeini("[pytest]\nplog_broker = process\n")
    source = """
    def test_process(plog_broker):
        assert plog_broker.pid
    """
    run(source).assert_outcomes(passed=1)
    pytester.makeini("[pytest]\nplog_broker = fork\n")
    result = run(source)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*plog_broker = fork*thread, process*"])


def test_concurrent_sessions_are_independent(pytester: pytest.Pytester) -> None:
    """As pytest-xdist runs its workers: separate processes below one directory."""
    pytester.makepyfile(shared=CONFLUENT)
    path = pytester.makepyfile(
        """
        import pytest
        from shared import receive, send

        @pytest.mark.plog_topic("orders")
        @pytest.mark.parametrize("n", range(3))
        def test_one(plog_session_broker, n):
            assert send(plog_session_broker, "orders", b"%d" % n) == [None]
            assert receive(plog_session_broker, "orders", 1, **{"group.id": str(n)}) == [b"%d" % n]
        """
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "plogd.testing.plugin", str(path)]
    sessions = [
        subprocess.Popen(
            [*command, "-p", "no:cacheprovider", f"--basetemp={pytester.path / f'worker{n}'}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=pytester.path,
        )
        for n in range(2)
    ]
    for session in sessions:
        stdout, _ = session.communicate(timeout=120)
        assert session.returncode == 0, stdout.decode()


def test_frozen_time_does_not_stop_a_thread(run: Run) -> None:
    """As frozen by libraries that replace time.time and time.monotonic."""
    result = run(
        """
        import time
        from shared import send

        def test_one(plog_broker, plog_topic, monkeypatch):
            now = time.time()
            monkeypatch.setattr(time, "monotonic", lambda: 1.0)
            monkeypatch.setattr(time, "time", lambda: now)
            monkeypatch.setattr(time, "time_ns", lambda: int(now * 1e9))
            plog_broker.hooks.delay("Produce", 0.2)
            assert send(plog_broker, plog_topic, b"x") == [None]
        """
    )
    result.assert_outcomes(passed=1)


def test_files_are_below_pytests_temporary_directory(run: Run) -> None:
    result = run(
        """
        def test_one(plog_broker, plog_session_broker, tmp_path, tmp_path_factory):
            assert plog_broker.data_dir.is_relative_to(tmp_path)
            base = tmp_path_factory.getbasetemp()
            assert plog_session_broker.data_dir.is_relative_to(base)
        """
    )
    result.assert_outcomes(passed=1)
