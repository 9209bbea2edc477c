"""storage/import_writer.py: a plog broker starts on imported data, also after crashes."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from plog.records.codec import Record
from plog.records.reader import iter_records
from plog.types import TopicPartition
from plogd.log.disk.checkpoint_files import read_meta_properties
from plogd.log.disk.log_dir import LogDirUnusable
from plogd.metadata.image import MetadataImage
from plogd.tools.storage.import_command import Refused, read_and_plan
from plogd.tools.storage.import_plan import Plan, PlanOptions
from plogd.tools.storage.import_writer import (
    KAFKA_METADATA_ASIDE,
    STAGING_DIR,
    TargetUnusable,
    World,
    adopt_in_place,
    check_in_place,
    check_targets,
    copy_into,
    metadata_records,
)
from tests.corpus import legacy
from tests.helpers.programs.kafka_data import CLUSTER_ID, KafkaData, batch, topic_id
from tests.helpers.sim.sim_broker import SimBroker
from tests.helpers.sim.sim_files import Operation, SimFiles
from tests.sim.crash_points import clone

NODE = 7
CLICKS, OLD = topic_id(1), topic_id(2)
VALUES = [b"one", b"two", b"three"]
LEGACY = legacy.records(0)
SEEDS = range(3)


def _kafka(*, clean: bool = True, kraft: bool = True) -> SimFiles:
    """Return a directory with a topic of two partitions, and a topic in an old format."""
    files = SimFiles(["/kafka"])
    data = KafkaData(files, "/kafka", node_id=NODE, kraft=kraft)
    data.topic("clicks", CLICKS, partitions=2, leader_epoch=5, retention_ms="987654321")
    data.topic("old", OLD)
    data.config(4, "", "log.retention.ms", "123456789")
    data.producer_ids(5000)
    data.metadata.append(b"\x01\x15\x00")  # A ZooKeeper migration, so all segments are inspected.
    data.log("clicks", 0, batch(VALUES, epoch=4), uuid=CLICKS, end_offset=3)
    data.log("clicks", 1, batch([b"other"]), uuid=CLICKS, end_offset=1)
    data.log("old", 0, (1000, legacy.load("magic-0-lz4")), uuid=OLD, end_offset=1005)
    data.stop(clean=clean)
    return files


def _world(files: SimFiles, check_sources: Callable[[], None] = lambda: None) -> World:
    def copy(source: str, target: str, progress: Callable[[int], None]) -> None:
        data = files.read_file(source)
        file = files.open_append(target)
        file.append(data)
        file.sync()
        file.close()
        progress(len(data))

    return World(
        files=files,
        copy=copy,
        set_modified_ms=lambda path, ms: None,
        random_bytes=random.Random(1).randbytes,
        now_ms=1_700_000_000_000,
        progress=lambda _: None,
        check_sources=check_sources,
    )


def _plan(files: SimFiles, *targets: str) -> Plan:
    return read_and_plan(files, ["/kafka"], None, PlanOptions(targets=targets))


def _start(files: SimFiles, *dirs: str) -> SimBroker:
    return SimBroker(files=files, log_dirs=dirs, node_id=NODE).start()


def _values(broker: SimBroker, topic: str, partition: int = 0, offset: int = 0) -> list[bytes]:
    return [record.value or b"" for record in _records(broker, topic, partition, offset)]


def _records(broker: SimBroker, topic: str, partition: int = 0, offset: int = 0) -> list[Record]:
    answer = broker.fetch(topic, offset, partition=partition)
    assert answer.error_code == 0
    return list(iter_records(bytes(answer.records or b""), from_offset=offset))


def _assert_all_there(broker: SimBroker) -> None:
    assert _values(broker, "clicks") == VALUES
    assert _values(broker, "clicks", 1) == [b"other"]
    assert _records(broker, "old", offset=1000) == LEGACY
    assert broker.produce("clicks", b"new").base_offset == len(VALUES)
    assert broker.log("clicks").leader_epochs.latest_epoch == 6, "one above Kafka's"
    assert broker.bugs == []


# -- the metadata log --------------------------------------------------------------------------


def test_metadata_log_has_records_that_plog_would_write() -> None:
    image = MetadataImage()
    for offset, record in enumerate(metadata_records(_plan(_kafka(), "/plog"))):
        image.replay(record, offset)
    topic, _ = image.get(("topic", "clicks"))
    assert topic.topic_id == CLICKS
    assert topic.assignments == {0: (NODE,), 1: (NODE,)}
    partition, _ = image.get(("partition", "clicks", 1))
    assert (partition.leader, partition.isr, partition.leader_epoch) == (NODE, (NODE,), 5)
    assert image.get(("config", "topic", "clicks"))[0] == {"retention.ms": "987654321"}
    assert image.get(("config", "broker", ""))[0] == {"log.retention.ms": "123456789"}
    assert image.get(("producer_ids",))[0].next_producer_id == 5000


def test_metadata_log_of_several_batches_loads() -> None:
    files = SimFiles(["/kafka"])
    data = KafkaData(files, "/kafka", node_id=NODE)
    for number in range(400):
        uuid = number.to_bytes(2, "big") + CLICKS[2:]
        data.topic(f"topic-{number}", uuid)
        data.log(f"topic-{number}", 0, b"", uuid=uuid)
    data.stop()
    copy_into(_plan(files, "/plog"), _world(files))
    assert _start(files, "/plog").broker.cache.topic_count == 400


# -- by copy -----------------------------------------------------------------------------------


def test_broker_starts_on_copy() -> None:
    files = _kafka()
    before = {x: files.read_file(f"/kafka/{x}") for x in files.listdir("/kafka") if "." in x}
    plan = _plan(files, "/plog")
    check_targets(files, plan)
    copy_into(plan, _world(files))
    assert files.exists("/plog/.kafka_cleanshutdown")
    identity = read_meta_properties(files, "/plog")
    assert identity is not None
    assert (identity.cluster_id, identity.node_id) == (CLUSTER_ID, NODE)
    assert len(identity.directory_id) == 22
    assert before == {x: files.read_file(f"/kafka/{x}") for x in before}
    broker = _start(files, "/plog")
    _assert_all_there(broker)
    assert broker.log("clicks").config.retention_ms == 987654321


def test_broker_starts_on_copy_in_two_directories() -> None:
    files = _kafka()
    plan = _plan(files, "/a", "/b")
    copy_into(plan, _world(files))
    assert {x.target for x in plan.partitions} == {"/a", "/b"}
    _assert_all_there(_start(files, "/a", "/b"))


def test_first_start_recovers_copy_of_unclean_source() -> None:
    files = _kafka(clean=False)
    torn = batch([b"never acknowledged"], 3, epoch=4)[:-1]
    file = files.open_append("/kafka/clicks-0/00000000000000000000.log")
    file.append(torn)
    file.close()
    copy_into(_plan(files, "/plog"), _world(files))
    assert not files.exists("/plog/.kafka_cleanshutdown")
    broker = _start(files, "/plog")
    assert any(f"truncated {len(torn)} bytes from clicks-0" in line for line in broker.reports)
    _assert_all_there(broker)


@pytest.mark.parametrize("target", ["/plog", "/kafka"])
def test_segment_that_a_killed_kafka_has_preallocated_is_adopted(target: str) -> None:
    """With ``log.preallocate=true``, Kafka fills its active segment and indexes with zeros."""
    files = _kafka(clean=False)
    zeros = {".log": 3 << 20, ".index": 4096, ".timeindex": 4092}
    for suffix, size in zeros.items():
        file = files.open_append(f"/kafka/clicks-0/00000000000000000000{suffix}")
        file.append(bytes(size))
        file.close()
    if target == "/kafka":
        plan = _plan(files)
        check_in_place(files, plan)
        adopt_in_place(plan, _world(files))
    else:
        copy_into(_plan(files, target), _world(files))
    limits = {"plog_log_preallocate_bytes": 200}
    broker = SimBroker(files=files, log_dirs=(target,), node_id=NODE, **limits).start()
    assert any(f"truncated {3 << 20} bytes from clicks-0" in line for line in broker.reports)
    _assert_all_there(broker)
    # plog reserves space after the records instead, and releases it when it stops.
    path = f"{target}/clicks-0/00000000000000000000.log"
    while broker.log("clicks").segments.active.size_bytes < 500:
        assert broker.produce("clicks", b"more").error_code == 0
    assert files.reserved_bytes(path)
    size = len(files.read_file(path))
    broker.stop()
    assert (files.reserved_bytes(path), len(files.read_file(path))) == (0, size)
    assert _values(broker.restart(), "clicks")[: len(VALUES)] == VALUES


def test_import_fails_when_broker_starts_in_source() -> None:
    files = _kafka()

    def started() -> None:
        raise Refused("a broker was started")

    with pytest.raises(Refused):
        copy_into(_plan(files, "/plog"), _world(files, started))
    with pytest.raises(LogDirUnusable):
        _start(files, "/plog")


@pytest.mark.parametrize("name", ["README", "clicks-9", "__cluster_metadata-0"])
def test_target_that_is_not_empty_is_rejected(name: str) -> None:
    files = _kafka()
    files.mkdir(f"/plog/{name}")
    with pytest.raises(TargetUnusable, match=f"it contains {name}; empty"):
        check_targets(files, _plan(files, "/plog"))


def test_broker_rejects_unfinished_copy_and_next_run_completes_it() -> None:
    """The test simulates power loss and a kill at every operation, then imports again."""
    files = _kafka()
    points = _points(files, lambda plan: copy_into(plan, _world(files)), "/plog")
    finished = 0
    for number, point in enumerate(points):
        disk = clone(point).crash(random.Random(number)) if number % 2 else clone(point).kill()
        if disk.exists("/plog/__cluster_metadata-0"):
            finished += 1
        else:
            if disk.exists("/plog") and disk.listdir("/plog"):
                with pytest.raises(LogDirUnusable, match=r"__cluster_metadata-0 in log\.dirs"):
                    _start(clone(disk), "/plog")
            plan = _plan(disk, "/plog")
            check_targets(disk, plan)
            copy_into(plan, _world(disk))
        _assert_all_there(_start(disk, "/plog"))
    assert 0 < finished < len(points)


def _points(files: SimFiles, act: Callable[[Plan], None], *targets: str) -> list[SimFiles]:
    points: list[SimFiles] = []

    def before(operation: Operation) -> None:
        if not operation.is_read:
            points.append(clone(files))

    plan = _plan(files, *targets)
    files.on_operation = before
    act(plan)
    points.append(clone(files))
    return points


# -- in place ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KafkaView:
    """The data that Kafka would find: its metadata, and the records of each partition."""

    metadata: Mapping[str, bytes]
    records: Mapping[TopicPartition, list[Record]]


def _kafka_view(files: SimFiles, metadata_dir: str) -> KafkaView:
    path = f"/kafka/{metadata_dir}"
    records = {}
    for key, base_offset in ((("clicks", 0), 0), (("clicks", 1), 0), (("old", 0), 1000)):
        name = f"/kafka/{key[0]}-{key[1]}/{base_offset:020d}.log"
        data = files.read_file(name)
        if data[16] < 2:
            assert data == legacy.load("magic-0-lz4")
            records[TopicPartition(*key)] = LEGACY
        else:
            records[TopicPartition(*key)] = list(iter_records(data))
    return KafkaView(
        {name: files.read_file(f"{path}/{name}") for name in files.listdir(path)}, records
    )


def test_in_place_import_converts_directory_and_keeps_kafkas_metadata() -> None:
    files = _kafka()
    before = _kafka_view(files, "__cluster_metadata-0")
    plan = _plan(files)
    check_in_place(files, plan)
    adopt_in_place(plan, _world(files))
    assert _kafka_view(files, KAFKA_METADATA_ASIDE) == before
    assert not files.exists(f"/kafka/{STAGING_DIR}")
    broker = _start(files, "/kafka")
    _assert_all_there(broker)
    assert not any("renamed to" in line for line in broker.reports)


def test_in_place_import_in_zookeeper_mode_has_no_metadata_to_keep() -> None:
    files = _kafka(kraft=False)
    plan = _plan(files)
    check_in_place(files, plan)
    adopt_in_place(plan, _world(files))
    assert not files.exists(f"/kafka/{KAFKA_METADATA_ASIDE}")
    broker = _start(files, "/kafka")
    assert _values(broker, "clicks") == VALUES
    assert _records(broker, "old", offset=1000) == LEGACY


def test_crash_at_any_step_in_place_leaves_kafkas_or_plogs_directory() -> None:
    """If the directory is still Kafka's, the import can be repeated."""
    files = _kafka()
    before = _kafka_view(files, "__cluster_metadata-0")
    points = _points(files, lambda plan: adopt_in_place(plan, _world(files)))
    outcomes = set()
    for point in points:
        for seed in SEEDS:
            disk = clone(point).crash(random.Random(seed)) if seed else clone(point).kill()
            if disk.exists("/kafka/__cluster_metadata-0/quorum-state"):
                outcomes.add("kafka")
                assert _kafka_view(disk, "__cluster_metadata-0") == before
                strange = set(disk.listdir("/kafka")) - set(_kafka().listdir("/kafka"))
                assert strange <= {STAGING_DIR}, "Kafka would stumble over it"
                adopt_in_place(_plan(disk), _world(disk))
            else:
                outcomes.add("plog")
            _assert_all_there(_start(disk, "/kafka"))
    assert outcomes == {"kafka", "plog"}


def test_directory_imported_in_place_is_rejected() -> None:
    files = _kafka()
    plan = _plan(files)
    adopt_in_place(plan, _world(files))
    with pytest.raises(TargetUnusable, match="exists from an earlier import"):
        check_in_place(files, plan)
    with pytest.raises(Refused, match=r"cannot import /kafka: plog wrote"):
        _plan(files)


def test_directory_imported_in_zookeeper_mode_is_rejected() -> None:
    files = _kafka()
    adopt_in_place(_plan(files), _world(files))
    path = "/kafka/meta.properties"
    text = files.read_file(path).decode()
    old = text.replace("version=1", "version=0").replace("node.id", "broker.id")
    files.overwrite(path, old.encode())
    with pytest.raises(Refused, match=r"cannot import /kafka: plog wrote"):
        _plan(files)


def test_in_place_import_is_rejected_without_atomic_exchange() -> None:
    files = _kafka()
    plan = _plan(files)
    names = files.listdir("/kafka")

    files.fail_when(lambda operation: operation.name == "exchange", errno.EINVAL)
    with pytest.raises(TargetUnusable, match="import without --in-place"):
        check_in_place(files, plan)
    assert files.listdir("/kafka") == names
