"""A complete broker: restarts, starts with foreign or missing files, failed disks."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from plog.errors import ErrorCode, PlogError
from plog.records.batch import iter_batches
from plog.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from plog.wire.messages.delete_topics import DeleteTopicsRequest
from plog.wire.messages.metadata import MetadataRequest
from tests.helpers.sim.sim_broker import (
    LOG_DIR,
    SimBroker,
    create_topic,
    produce_request,
)
from tests.helpers.sim.sim_files import SimCrash, SimFiles
from tests.helpers.sim.sim_ports import SimPorts, outcome


def names(broker: SimBroker) -> list[str]:
    return [topic.name for topic in broker.ask(MetadataRequest(topics=None), 9).topics]


def values(broker: SimBroker, topic: str, partition: int = 0) -> bytes:
    return bytes(broker.fetch(topic, partition=partition).records)


class TestRestart:
    """Restarts after a clean stop, a killed process and a power loss."""

    @pytest.mark.parametrize("how", ["stop", "kill", "crash"])
    def test_topics_and_acknowledged_records_survive_restart(self, how: str) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t", 2, retention_ms="123456789")
        assert broker.produce("t", b"precious", partition=1).error_code == 0
        if how == "stop":
            broker.stop()
        files = broker.files.crash(broker.ports.random) if how == "crash" else None
        again = broker.restart(files)
        assert again.broker.cluster_id == broker.broker.cluster_id
        assert b"precious" in values(again, "t", 1)
        assert again.log("t", 1).config.retention_ms == 123456789
        assert again.fetch("t", partition=1).high_watermark == 1
        assert again.bugs == []

    def test_broker_is_not_ready_before_its_logs_are_loaded(self) -> None:
        broker = SimBroker()
        started = broker.broker.start()
        ready = [broker.broker.is_ready]
        broker.settle()
        outcome(started)
        ready.append(broker.broker.is_ready)
        broker.stop()
        ready.append(broker.broker.is_ready)
        assert ready == [False, True, False]

    def test_each_start_leads_in_new_epoch(self) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t")
        for epoch in range(3):
            broker.produce("t", b"x")
            [*_, (_, header)] = iter_batches(values(broker, "t"))
            assert header.partition_leader_epoch == epoch
            broker = broker.restart()

    def test_stop_waits_for_requests_in_progress(self) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t")
        asked = broker.begin(produce_request("t", b"last"), 9)
        broker.stop()
        assert asked.response().responses[0].partition_responses[0].error_code == 0
        again = broker.restart(broker.files.crash(SimPorts().random))
        assert b"last" in values(again, "t")


class TestForeignLogs:
    """Log directories that do not match the metadata."""

    def test_log_of_unknown_topic_becomes_stray(self) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t")
        broker.produce("t", b"a")
        files = broker.files.kill()
        files.rename("/data/t-0", "/data/ghost-0")
        again = broker.restart(files)
        assert names(again) == ["t"]
        strays = [name for name in files.listdir("/data") if name.startswith("ghost-0")]
        assert [name.endswith("-stray") for name in strays] == [True]
        create_topic(again, "ghost")
        assert again.fetch("ghost").high_watermark == 0

    def test_log_of_older_topic_with_same_name_becomes_stray(self) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t")
        broker.produce("t", b"old")
        files = broker.files.kill()
        files.rename("/data/t-0", "/data/kept")
        broker = broker.restart(files)
        broker.ask(DeleteTopicsRequest(topic_names=["t"], timeout_ms=1000), 5)
        create_topic(broker, "t")
        broker.ports.advance(70_000)
        files = broker.files.kill()
        files.rename("/data/t-0", "/data/newer")
        files.rename("/data/kept", "/data/t-0")
        again = broker.restart(files)
        assert b"old" not in values(again, "t")
        assert any(name.endswith("-stray") for name in files.listdir("/data"))

    def test_topic_without_log_gets_empty_log(self) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t", 2)
        files = broker.files.kill()
        for name in files.listdir("/data/t-1"):
            files.unlink(f"/data/t-1/{name}")
        files.rmdir("/data/t-1")
        again = broker.restart(files)
        assert again.produce("t", b"a", partition=1).base_offset == 0


class TestSeveralLogDirs:
    """One of several log directories fails."""

    def two(self, **settings: Any) -> SimBroker:
        files = SimFiles(device_by_path={"/a": 2, "/b": 3})
        broker = SimBroker(files=files, log_dirs=("/a", "/b"), **settings).start()
        create_topic(broker, "t", 4)
        return broker

    def lost(self, broker: SimBroker) -> list[int]:
        return [n for n in range(4) if broker.log("t", n).log_dir == "/b"]

    def test_partitions_are_spread_and_those_of_other_directories_continue(self) -> None:
        broker = self.two()
        assert len(self.lost(broker)) == 2
        broker.files.fail_when(lambda op: op.path.startswith("/b"), errno.EIO)
        codes = [broker.produce("t", b"a", partition=n).error_code for n in range(4)]
        expected = [
            ErrorCode.KAFKA_STORAGE_ERROR if n in self.lost(broker) else 0 for n in range(4)
        ]
        assert codes == expected
        create_topic(broker, "u", 2)
        assert broker.produce("u", b"a", partition=1).error_code == 0

    def test_directory_unreadable_at_start_is_offline_and_not_recreated(self) -> None:
        broker = self.two()
        lost = self.lost(broker)
        for n in range(4):
            broker.produce("t", b"a", partition=n)
        files = broker.files.kill()
        files.fail_when(lambda op: op.path.startswith("/b"), errno.EIO)
        again = broker.restart(files)
        for n in range(4):
            code = again.fetch("t", partition=n).error_code
            assert code == (ErrorCode.KAFKA_STORAGE_ERROR if n in lost else 0)
        [topic] = again.ask(MetadataRequest(topics=None), 9).topics
        assert [p.leader_id for p in topic.partitions] == [-1 if n in lost else 1 for n in range(4)]
        files.fail_no_more()
        repaired = again.restart(files.kill())
        assert all(repaired.fetch("t", partition=n).high_watermark == 1 for n in range(4))

    def test_failure_of_last_directory_is_reported(self) -> None:
        broker = self.two()
        calls: list[str] = []
        broker.broker.on_must_stop = calls.append
        broker.files.fail_when(lambda op: op.path.startswith("/b"), errno.EIO)
        for n in range(4):
            broker.produce("t", b"a", partition=n)
        assert calls == []
        broker.files.fail_when(lambda op: True, errno.EIO)
        for n in range(4):
            broker.produce("t", b"a", partition=n)
        assert calls == ["all log directories have failed"]


class TestIdentity:
    """F6: the log directory of another broker or another cluster."""

    def test_directory_of_another_broker_is_refused(self) -> None:
        broker = SimBroker(node_id=1).start()
        broker.stop()
        with pytest.raises(PlogError, match=r"belongs to broker 1"):
            broker.restart(node_id=2)

    def test_directory_of_another_cluster_is_refused(self) -> None:
        broker = SimBroker(log_dirs=("/a", "/b")).start()
        broker.stop()
        identity = broker.files.read_file("/b/meta.properties").decode()
        other = identity.replace(broker.broker.cluster_id, "AAAAAAAAAAAAAAAAAAAAAQ")
        broker.files.overwrite("/b/meta.properties", other.encode())
        expected = r"/b belongs to cluster AAA.*, but /a belongs to .*; correct"
        with pytest.raises(PlogError, match=expected):
            broker.restart()
        broker.files.overwrite("/b/meta.properties", identity.encode())
        broker.restart()

    def test_second_broker_on_same_directory_is_refused(self) -> None:
        broker = SimBroker().start()
        other = SimBroker(files=broker.files)
        started = other.broker.start()
        other.settle()
        with pytest.raises(PlogError, match="in use"):
            outcome(started)


def lines(broker: SimBroker, text: str) -> list[str]:
    return [line for line in broker.reports if text in line]


class TestRegistration:
    """The endpoints and the rack in the registration of the broker."""

    def test_advertised_addresses_are_registered(self) -> None:
        broker = SimBroker(
            listeners=("PLAINTEXT://0.0.0.0:9092", "INSIDE://192.0.2.1:9093", "OTHER://:0"),
            advertised_listeners=("PLAINTEXT://plog.example:19092", "OTHER://other.example:0"),
            listener_security_protocol_map="PLAINTEXT:PLAINTEXT,INSIDE:SSL,OTHER:PLAINTEXT",
            broker_rack="r1",
        ).start()
        registration = broker.broker.store.get(("broker", 1))[0]
        assert registration.rack == "r1"
        assert [
            (each.name, each.host, each.port, each.security_protocol)
            for each in registration.endpoints
        ] == [
            ("PLAINTEXT", "plog.example", 19092, "PLAINTEXT"),
            ("INSIDE", "192.0.2.1", 9093, "SSL"),
            ("OTHER", "other.example", 0, "PLAINTEXT"),
        ]


class TestMissingFiles:
    """F6: a missing file or directory is reported, with a remedy."""

    @pytest.mark.parametrize("clean", [True, False])
    def test_missing_partition_directory_is_reported_and_recreated(self, clean: bool) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t", 2)
        broker = broker.restart()  # The partition has outlived a start.
        for number in range(3):
            broker.produce("t", b"%d" % number, partition=1)
        broker.broker.log_manager.write_high_watermarks()
        broker.settle()
        if clean:
            broker.stop()
        files = broker.files.kill()
        remove_directory(files, "/data/t-1")
        again = broker.restart(files)
        [line] = lines(again, "cannot find /data/t-1: created an empty log")
        assert "stop the broker and restore the directory from a backup" in line
        assert len(lines(again, "t-1 has lost offsets 0 to 2")) == 1
        assert again.produce("t", b"new", partition=1).base_offset == 3
        assert again.restart().fetch("t", 3, partition=1).high_watermark == 4
        assert again.bugs == []

    def test_missing_partition_directory_unknown_to_checkpoints_is_reported(self) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t", 12)
        files = broker.files.kill()
        for number in range(12):
            remove_directory(files, f"/data/t-{number}")
        again = broker.restart(files)
        [line] = lines(again, "in log.dirs: created empty logs")
        assert line.startswith("cannot find the directories of 12 partitions")
        assert "t-0, t-1" in line
        assert "t-9 and 2 more" in line
        assert "replace the new directories with those from a backup" in line
        assert again.produce("t", b"new").base_offset == 0

    def test_nothing_is_reported_when_nothing_is_missing(self) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t", 2)
        for how in ("stop", "kill", "stop"):
            if how == "stop":
                broker.stop()
            broker = broker.restart()
            assert not [x for x in broker.reports if "cannot find" in x or "director" in x]

    @pytest.mark.parametrize("other", [True, False])
    def test_missing_meta_properties_is_reported_and_recreated(self, other: bool) -> None:
        broker = SimBroker(log_dirs=("/a", "/b")).start()
        create_topic(broker, "t", 2)
        files = broker.files.kill()
        files.unlink("/a/meta.properties")
        if not other:
            files.unlink("/b/meta.properties")
        again = broker.restart(files)
        reported = lines(again, "cannot find meta.properties in ")
        expected = ["/a,"] if other else ["/a,", "/b,"]
        assert [line.split()[4] for line in reported] == expected
        assert f"cluster {again.broker.cluster_id}" in reported[0]
        assert "restore the file from a backup" in reported[0]
        assert (again.broker.cluster_id == broker.broker.cluster_id) is other
        assert again.produce("t", b"x").error_code == 0
        assert lines(again.restart(), "meta.properties") == []

    def test_flipped_bit_in_leader_epoch_does_not_stop_partition(self) -> None:
        """No checksum covers the epoch; trusting it would make this broker a deposed leader."""
        broker = SimBroker().start()
        create_topic(broker, "t")
        broker.produce("t", b"a")
        broker.produce("t", b"b")
        files = broker.files.kill()
        path = "/data/t-0/00000000000000000000.log"
        content = bytearray(files.read_file(path))
        [_, (second, _)] = iter_batches(bytes(content))
        content[second + 13] ^= 1
        files.overwrite(path, bytes(content))
        again = broker.restart(files)
        [line] = lines(again, "has leader epoch 65536, which never existed")
        assert "the batch at offset 1 in /data/t-0" in line
        assert again.produce("t", b"c").base_offset == 2
        assert again.bugs == []

    def test_wrong_digit_in_leader_epoch_checkpoint_does_not_stop_partition(self) -> None:
        broker = SimBroker().start()
        create_topic(broker, "t")
        broker.produce("t", b"a")
        broker.stop()
        path = "/data/t-0/leader-epoch-checkpoint"
        assert broker.files.read_file(path) == b"0\n1\n0 0\n"
        broker.files.overwrite(path, b"0\n1\n7 0\n")
        again = broker.restart()
        assert len(lines(again, "rebuilding the leader epochs: /data/t-0")) == 1
        assert again.produce("t", b"c").base_offset == 1
        assert again.bugs == []


def remove_directory(files: SimFiles, path: str) -> None:
    for name in files.listdir(path):
        files.unlink(f"{path}/{name}")
    files.rmdir(path)


@pytest.mark.parametrize("cut_bytes", [0, 1, 100])
def test_metadata_log_that_lost_records_is_refused(cut_bytes: int) -> None:
    """R14: without these records the broker would lose topics and set their logs aside."""
    broker = SimBroker().start()
    create_topic(broker, "t")
    broker.stop()
    path = f"{LOG_DIR}/__cluster_metadata-0/{0:020}.log"
    content = broker.files.read_file(path)
    first_bytes = next(iter_batches(content))[1].size_bytes
    broker.files.overwrite(path, content[: first_bytes + cut_bytes])
    for _ in range(2):  # The second start must not accept the log either.
        with pytest.raises(PlogError, match=r"__cluster_metadata-0.*: .*(missing|damaged)"):
            broker.restart()
    broker.files.overwrite(path, content)
    assert broker.restart().produce("t", b"x").error_code == 0


def test_bug_is_counted_and_reported_without_on_bug() -> None:
    broker = SimBroker()
    broker.broker._on_bug = None
    broker.broker.report_bug("here", ZeroDivisionError("x"))
    assert "unexpected error: here" in broker.reports[0]
    assert "plog_unexpected_errors_total 1" in broker.metrics.expose().decode()


@pytest.mark.parametrize("seed", range(3))
def test_crash_at_any_operation_loses_no_acknowledged_change(seed: int) -> None:
    """Create, produce, delete, create again: after each crash the broker starts with true state."""
    crash_at = 1 + seed
    while True:
        broker = SimBroker(ports=SimPorts(seed), auto_create_topics_enable=False).start()
        answered: dict[str, str] = {}
        broker.files.crash_at(broker.files.operations + crash_at)
        try:
            _live(broker, answered)
        except SimCrash:
            pass
        else:
            break
        again = broker.restart(broker.files.crash(broker.ports.random))
        _check(again, answered, crash_at)
        crash_at += 3
    assert crash_at > 40


def _live(broker: SimBroker, answered: dict[str, str]) -> None:
    """Use topics; `answered` has the state of each topic according to its last response."""
    for name in ("a", "b"):
        answered[name] = "creating"
        create_topic(broker, name, 2)
        answered[name] = "created"
        answer = broker.produce(name, name.encode() * 10, partition=1)
        answered[name] = "produced" if answer.error_code == 0 else "created"
    answered["a"] = "deleting"
    broker.ask(DeleteTopicsRequest(topic_names=["a"], timeout_ms=60_000), 5)
    answered["a"] = "deleted"
    topic = CreatableTopic(name="a", num_partitions=1, replication_factor=1)
    answered["a"] = "creating again"
    broker.ask(CreateTopicsRequest(topics=[topic]), 5)
    answered["a"] = "created again"


def _check(broker: SimBroker, answered: dict[str, str], crash_at: int) -> None:
    found = names(broker)
    for name, state in answered.items():
        where = f"{name} {state}, crash at {crash_at}"
        if state in ("created", "produced", "created again"):
            assert name in found, where
        if state == "deleted":
            assert name not in found, where
        if state == "produced":
            assert name.encode() * 10 in values(broker, name, 1), where
        if state.endswith("again") and name in found:
            assert values(broker, name) == b"", where
    for name in found:
        assert broker.produce(name, b"after").error_code == 0
    assert broker.bugs == []
