"""The logs of a broker without the broker: a `LogManager` over simulated ports and disk.

    site = LogSite()
    site.start()
    log = site.create("t-0")
    site.append(log, 3)
    site.ports.settle()
    site = site.crash(seed=1)   # a power loss, and the next life on the remaining files

The site remembers the existing topics, as the metadata would, and advances the high watermark of
each log like a partition with one replica.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import Any

from plog.records.batch import iter_batches, parse_header, set_base_offset_and_epoch
from plog.records.reader import read_records
from plog.types import TopicPartition
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue
from plogd.log import file_names
from plogd.log.batch_validator import AppendOrigin
from plogd.log.creation import NewLog
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.log.log_results import AppendInfo
from plogd.log.recovery.log_discovery import KnownTopic
from plogd.topic_config import TopicConfig
from tests.helpers.injection import Faults
from tests.helpers.log.log_data import client_batch
from tests.helpers.sim.sim_files import SimFiles
from tests.helpers.sim.sim_ports import SimPorts, settled

CONFIG = TopicConfig(
    segment_bytes=1000, index_interval_bytes=150, retention_ms=-1, file_delete_delay_ms=1000
)
"""Segments of a few batches; no deletion unless a test requests it."""


def partition_of(name: str) -> TopicPartition:
    """Return ``"t-0"`` as a partition."""
    parsed = file_names.parse_partition_dir_name(name)
    assert parsed is not None
    return parsed.topic_partition


SUFFIXES = (".log", ".index", ".timeindex")
"""The files that every segment has."""


class LogSite:
    """One life of a broker's logs."""

    def __init__(
        self,
        log_dirs: tuple[str, ...] = ("/a",),
        *,
        files: SimFiles | None = None,
        ports: SimPorts | None = None,
        device_by_path: Mapping[str, int] | None = None,
        faults: Faults | None = None,
        **settings: Any,
    ) -> None:
        self.ports = ports or SimPorts(
            files=files or SimFiles(log_dirs, device_by_path=device_by_path)
        )
        self.log_dirs = log_dirs
        self.settings = settings
        self.files = self.ports.files
        self.config = BrokerConfig(log_dirs=log_dirs, node_id=1, **settings)
        self.reports = self.ports.reports
        self.bugs: list[Exception] = []
        self.offline: list[str] = []
        self.last_is_offline = False
        self.topics: dict[TopicPartition, tuple[bytes, TopicConfig]] = {}
        self.epoch = 0
        self.has_other_replicas = False
        """Whether other brokers have replicas of all partitions."""
        self.leads = True
        """Whether the site advances high watermarks."""
        ports_of_manager = self.ports.bundle()
        self.manager = LogManager(
            self.config,
            log_dirs,
            faults.ports(ports_of_manager) if faults else ports_of_manager,
            fair_queue=FairQueue(self.ports.timers),
            on_bug=lambda where, error: self.bugs.append(error),
        )
        self.manager.on_offline = lambda log_dir, logs: self.offline.append(log_dir)
        self.manager.on_last_offline = self._on_last_offline

    def _on_last_offline(self) -> None:
        self.last_is_offline = True

    # -- lives --------------------------------------------------------------------------------

    def start(self) -> LogSite:
        """Take over the directories and load their logs."""
        self.settle(self.manager.open_directories())
        self.settle(self.manager.load_logs(self._topic_of))
        for log in self.manager.logs.values():
            self._lead(log)
        return self

    def _topic_of(self, key: TopicPartition) -> KnownTopic | None:
        if key not in self.topics:
            return None
        topic_id, config = self.topics[key]
        return KnownTopic(
            topic_id=topic_id, config=config, has_other_replicas=self.has_other_replicas
        )

    def stop(self) -> None:
        """Stop cleanly."""
        self.settle(self.manager.shutdown())

    def crash(self, seed: int) -> LogSite:
        """Return the next life, after a power loss."""
        return self._successor(self.files.crash(random.Random(seed))).start()

    def kill(self) -> LogSite:
        """Return the next life, after the process was killed."""
        return self._successor(self.files.kill()).start()

    def restart(self) -> LogSite:
        """Return the next life, after a clean stop."""
        self.stop()
        return self.kill()

    def next_life(self) -> LogSite:
        """Like `kill`, but without starting the next life."""
        return self._successor(self.files.kill())

    def _successor(self, files: SimFiles) -> LogSite:
        site = LogSite(self.log_dirs, ports=self.ports.next_life(files), **self.settings)
        site.topics = dict(self.topics)
        site.epoch = self.epoch + 1
        site.has_other_replicas = self.has_other_replicas
        return site

    def settle(self, later: Any = None) -> Any:
        """Run all pending work; return the outcome of `later`."""
        self.ports.settle()
        return settled(self.ports, later)

    # -- logs ---------------------------------------------------------------------------------

    def create(self, name: str, config: TopicConfig = CONFIG) -> Log:
        """Create a topic of one partition, and its log."""
        new = self.new(name, config)
        self.topics[new.topic_partition] = (new.topic_id, config)
        [log] = self.settle(self.manager.create([new]))
        assert isinstance(log, Log)
        self._lead(log)
        return log

    def new(self, name: str, config: TopicConfig = CONFIG) -> NewLog:
        """Return the argument of `LogManager.create` for a new log."""
        return NewLog(
            topic_partition=partition_of(name),
            topic_id=self.ports.random.random_bytes(16),
            config=config,
        )

    def delete(self, name: str) -> None:
        """Delete a topic of one partition."""
        key = partition_of(name)
        del self.topics[key]
        self.settle(self.manager.delete(key))

    def log(self, name: str = "t-0") -> Log:
        """Return the log of a partition."""
        log = self.manager.get(partition_of(name))
        assert log is not None
        return log

    def _lead(self, log: Log) -> None:
        log.on_durable = lambda: self.advance(log)
        self.advance(log)

    def advance(self, log: Log) -> None:
        """Raise the high watermark to the acknowledged end, if the site leads."""
        if self.leads:
            log.high_watermark = max(log.high_watermark, log.acknowledged_end_offset)

    def append(self, log: Log, records: int = 1, **how: Any) -> AppendInfo:
        """Append a batch as a leader; each one is slightly newer than the previous one."""
        how.setdefault("timestamp", self.ports.clock.now_ms() + log.log_end_offset)
        return self.append_batch(log, client_batch(records, **how))

    def append_batch(
        self, log: Log, batch: memoryview, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Append a batch as a leader; a transaction coordinator appends markers."""
        info = log.append_as_leader(
            batch, leader_epoch=self.epoch, now_ms=self.ports.clock.now_ms(), origin=origin
        )
        self.advance(log)
        return info

    def follow(self, log: Log, *batches: memoryview) -> AppendInfo | None:
        """Append batches as a follower, at the next offsets of the leader in this epoch."""
        offset, data = log.log_end_offset, bytearray()
        for batch in batches:
            set_base_offset_and_epoch(batch, 0, offset, self.epoch)
            offset = parse_header(batch).next_offset
            data += batch
        try:
            return log.append_as_follower(
                memoryview(data), leader_epoch=self.epoch, now_ms=self.ports.clock.now_ms()
            )
        finally:
            self.advance(log)

    def fill(self, log: Log, batches: int, value_bytes: int = 100, **how: Any) -> None:
        """Append batches of one record; values are `value_bytes` long and start with a number."""
        for _ in range(batches):
            value = str(log.log_end_offset).encode().ljust(value_bytes, b".")
            self.append(log, value=value, **how)

    def slow_down(self, log: Log) -> None:
        """Append a record so slowly that jobs write to the log's directory from now on."""
        self.files.append_ms = lambda path: 25.0
        self.append(log)
        self.files.append_ms = lambda path: 0.0
        self.settle()
        assert self.manager.dirs.writes_of(log.log_dir).is_slow

    def write_checkpoints(self) -> None:
        """Write the checkpoints, which tasks.py does every few seconds."""
        self.settle(self.manager.write_recovery_points())
        self.settle(self.manager.write_high_watermarks())

    def forget(self, *checkpoints: str) -> None:
        """Remove checkpoints of the first directory, so that recovery reads everything."""
        for name in checkpoints:
            if self.files.exists(f"{self.log_dirs[0]}/{name}"):
                self.files.unlink(f"{self.log_dirs[0]}/{name}")

    def flip(self, path: str, position: int) -> None:
        """Corrupt one byte of a file."""
        content = bytearray(self.files.read_file(path))
        content[position] ^= 0xFF
        self.files.overwrite(path, bytes(content))

    def contents(self, log: Log) -> dict[str, bytes]:
        """Return records and indexes, by file name."""
        return {
            name: self.files.read_file(f"{log.directory}/{name}")
            for name in self.files.listdir(log.directory)
            if name.endswith(SUFFIXES)
        }

    def state(self, log: Log) -> object:
        """Return everything that a rejected append must not change."""
        segment, producers = log.segments.active, log.producer_state.producers
        return (
            log.log_end_offset,
            base_offsets(log),
            self.contents(log),
            segment.size_bytes,
            # The last entries and not the counts, which would create the files of a new segment.
            segment.indexes.last_offset_entry,
            segment.indexes.last_time_entry,
            segment.max_timestamp,
            log.leader_epochs.entries,
            {producer_id: producers[producer_id].to_snapshot() for producer_id in producers},
        )

    def path(self, log: Log, base_offset: int, suffix: str = file_names.LOG_SUFFIX) -> str:
        """Return the path of a segment's file."""
        return file_names.segment_path(log.directory, base_offset, suffix)

    def listing(self, log: Log, suffix: str = file_names.LOG_SUFFIX) -> list[int]:
        """Return the base offsets of all files of one kind in a log's directory."""
        parsed = map(file_names.parse_segment_file_name, self.files.listdir(log.directory))
        return [name.base_offset for name in parsed if name and name[1:] == (suffix, "")]


def four_segments(batches: int = 17) -> tuple[LogSite, Log]:
    """Return a site and its log: segments at 0, 5, 10 and 15, all durable, all but one sealed."""
    site = LogSite().start()
    log = site.create("t-0")
    site.fill(log, batches)
    site.settle()
    return site, log


def base_offsets(log: Log) -> list[int]:
    """Return the base offsets of the log's segments."""
    return [segment.base_offset for segment in log.segments]


def batch_offsets(log: Log, offset: int | None = None, end_offset: int | None = None) -> list[int]:
    """Return the base offset of each readable batch, from `offset` to the high watermark."""
    end_offset = log.high_watermark if end_offset is None else end_offset
    return [header.base_offset for header, _ in _read(log, offset, end_offset)]


def values(log: Log, offset: int | None = None) -> dict[int, bytes | None]:
    """Return the value at each readable offset."""
    found: dict[int, bytes | None] = {}
    for header, payload in _read(log, offset, log.high_watermark):
        found.update({r.offset: r.value for r in read_records(payload, 0, header)})
    return found


def _read(log: Log, offset: int | None, end_offset: int) -> list[Any]:
    """Return header and bytes of each batch, read in pieces that split batches."""
    offset = log.log_start_offset if offset is None else offset
    found: list[Any] = []
    while offset < end_offset:
        data = log.read(offset, 500, end_offset=end_offset)
        if data.region is None:
            break
        payload = data.region.read()
        data.region.close()
        before = offset
        for position, header in iter_batches(payload):
            found.append((header, payload[position : position + header.size_bytes]))
            offset = header.next_offset
        assert offset > before, "a read without any batch"
    return found


def spied(files: SimFiles, *names: str) -> Callable[[], list[str]]:
    """Record the path of every later operation that is one of `names`."""
    paths: list[str] = []

    def observe(operation: Any) -> None:
        if operation.name in names:
            paths.append(operation.path)

    files.on_operation = observe
    return lambda: list(paths)
