"""All logs of a broker: making and deleting them, looking after them, and the end.

Owns the map from partition to `Log`. The directories themselves are disk/log_dirs.py's business,
finding and loading what is in them log_loader.py's, what topics should exist is the metadata's, and
what happens inside one log is `Log`'s.

Called on the reactor's thread; whatever touches a directory runs as a job on that directory's
lane. Start: `open_directories`, then `load_metadata_log`, then `load_logs` with what the metadata
knows.

Source: Kafka 3.9 LogManager.
Invariants: recovery points and high watermarks are written as a whole per directory; a directory
that failed once is not written again in this process.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence

from plog.errors import KafkaStorageError, PlogError, PolicyViolation
from plog.types import TopicPartition, Uuid
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue, Slices
from plogd.log import file_names
from plogd.log.creation import NewLog, create_logs
from plogd.log.deletion import Deletions
from plogd.log.disk.group_commit import SyncRounds
from plogd.log.disk.log_dir import LogDir, LogDirUnusable
from plogd.log.disk.log_dirs import LogDirs
from plogd.log.disk.log_start_checkpoint import LogStartCheckpoint
from plogd.log.disk.offset_checkpoints import OffsetCheckpoints
from plogd.log.housekeeping import Housekeeping
from plogd.log.io_errors import is_refusal, told
from plogd.log.log import Log
from plogd.log.log_state import LogHooks, LogState
from plogd.log.recovery.log_discovery import KnownTopic, TopicOf
from plogd.log.recovery.log_loader import LogLoader
from plogd.log.segment.cold_read import ColdRead
from plogd.log.segment.index_rebuild import IndexRebuilds
from plogd.log.segment.log_segment import UncheckedSegment
from plogd.log.segment.sealing import Sealing
from plogd.ports import (
    Clock,
    Files,
    Jobs,
    Later,
    Random,
    Report,
    Timers,
    Turn,
    gather,
    ready,
    silence,
    spawn,
)
from plogd.topic_config import TopicConfig

_REFUSAL_INTERVAL_MS = 60_000.0
"""How often a log directory without room is reported."""


class LogManager:
    """See the module's text. `logs` maps each partition to its open log."""

    def __init__(
        self,
        config: BrokerConfig,
        log_dirs: Sequence[str],
        *,
        clock: Clock,
        timers: Timers,
        files: Files,
        random: Random,
        jobs: Jobs,
        turn: Turn,
        fair_queue: FairQueue,
        report: Report = silence,
        on_bug: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._config = config
        self._clock = clock
        self._files = files
        self._random = random
        self._jobs = jobs
        self._queue = fair_queue
        self._report = report
        self._on_bug = on_bug or self._report_bug
        self._is_loaded = False
        self._refusals_quiet_until_ms: dict[str, float] = {}
        self.logs: dict[TopicPartition, Log] = {}
        self.on_offline: Callable[[str, Sequence[Log]], None] = lambda log_dir, logs: None
        """Hears of a log directory that failed, and its logs."""
        self.on_last_offline: Callable[[], None] = lambda: None
        """Hears that no log directory is left."""
        self._dirs = LogDirs(
            config,
            [LogDir(path, files, report) for path in log_dirs],
            clock=clock,
            files=files,
            random=random,
            jobs=jobs,
            turn=turn,
            timers=timers,
            report=report,
            on_failure=self._syncs_failed,
        )
        self.housekeeping = Housekeeping(
            clock=clock, timers=timers, report=report, operation_failed=self._operation_failed
        )
        """Passes over all logs, and the errors of background work."""
        self._checkpoints = OffsetCheckpoints(
            jobs=jobs,
            report=report,
            housekeeping=self.housekeeping,
            logs_in=self._logs_in,
            storage_failed=self.storage_failed,
        )
        self._log_start_writes = LogStartCheckpoint(turn=turn, write=self._note_log_starts)
        self._deletions = self._make_deletions(timers)
        self._index_rebuilds = IndexRebuilds(
            jobs=jobs, timers=timers, report=report, housekeeping=self.housekeeping
        )
        self._hooks = self._make_hooks(timers)
        self._loading = self._make_loading()

    def _make_loading(self) -> LogLoader:
        return LogLoader(
            self._dirs,
            config=lambda: self._config,
            clock=self._clock,
            files=self._files,
            random=self._random,
            jobs=self._jobs,
            report=self._report,
            loaded=self._open,
            storage_failed=self.storage_failed,
        )

    def _make_deletions(self, timers: Timers) -> Deletions:
        return Deletions(
            files=self._files,
            jobs=self._jobs,
            timers=timers,
            random=self._random,
            fair_queue=self._queue,
            housekeeping=self.housekeeping,
            write_log_starts=self._note_log_starts,
            storage_failed=self.storage_failed,
        )

    def _make_hooks(self, timers: Timers) -> LogHooks[Log]:
        self._sealing = Sealing(
            jobs=self._jobs,
            timers=timers,
            housekeeping=self.housekeeping,
            index_rebuilds=self._index_rebuilds,
            storage_failed=self.storage_failed,
        )
        return LogHooks(
            seal=self._sealing.seal,
            retire=self._deletions.retire,
            operation_failed=self._operation_failed,
            report=self._report,
            on_bug=self._on_bug,
        )

    # -- directories --------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The cluster this broker is of; known once `open_directories` is done."""
        return self._dirs.cluster_id

    @property
    def dirs(self) -> LogDirs:
        """The log directories."""
        return self._dirs

    @property
    def offline_dirs(self) -> list[str]:
        """The paths of the log directories that failed."""
        return self._dirs.offline_paths

    @property
    def sync_rounds(self) -> list[SyncRounds]:
        """Group commit's rounds, one per file system; for metrics."""
        return self._dirs.sync_rounds

    def open_directories(self) -> Later[None]:
        """Take over every log directory. Raises LogDirUnusable; see `LogDirs.open`."""
        return spawn(self._dirs.open())

    # -- loading ------------------------------------------------------------------------------

    def load_metadata_log(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: TopicConfig
    ) -> Later[Log]:
        """Load the embedded store's log from whichever directory holds it; make it in the first."""
        return spawn(self._load_metadata_log(topic_partition, topic_id, config))

    async def _load_metadata_log(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: TopicConfig
    ) -> Log:
        name = file_names.partition_dir_name(topic_partition)
        for log_dir in self._dirs.online:
            if self._files.exists(posixpath.join(log_dir.path, name)):
                try:
                    topic = KnownTopic(topic_id=topic_id, config=config)
                    await self._loading.load(log_dir, topic_partition, topic)
                    return self.logs[topic_partition]
                except OSError as error:
                    raise LogDirUnusable(f"cannot read {name}: {error}") from error
        if self._dirs.offline_paths:
            raise LogDirUnusable(
                f"{name} may lie in {', '.join(self._dirs.offline_paths)}, which cannot be used: "
                "mend that directory first, or this broker would start as a new, empty one"
            )
        for log_dir in self._dirs.online:
            if await self._jobs.submit(log_dir.lane, log_dir.holds_partitions):
                raise LogDirUnusable(
                    f"{log_dir.path} holds partitions, but {name} is in none of log.dirs: name "
                    "the directory that has it, or this broker would start as a new, empty one"
                )
        new = NewLog(topic_partition=topic_partition, topic_id=topic_id, config=config)
        [log] = await self._create(self._dirs.online[0], [new])
        return log

    def load_logs(self, topic_of: TopicOf) -> Later[None]:
        """Load every other log; where `topic_of` knows no such topic, put its directory aside.

        Directories that wait to be deleted are removed. A stray one (its topic id is unknown) gets
        a ``-stray`` name and stays on disk for people to look at. A log directory that cannot be
        read goes offline. Raises LogDirUnusable when two of them hold the same partition.
        """
        return spawn(self._load_logs(topic_of))

    async def _load_logs(self, topic_of: TopicOf) -> None:
        already = [(log.topic_partition, log.log_dir) for log in self.logs.values()]
        await self._loading.load_all(topic_of, already)
        self._is_loaded = True

    def _open(self, state: LogState) -> Log:
        log = Log(
            state,
            files=self._files,
            rounds=self._dirs.rounds_of(state.log_dir),
            writes=self._dirs.writes_of(state.log_dir),
            hooks=self._hooks,
        )
        log.flush_before_visible = self._config.plog_flush_before_visible
        log.producer_state.expiration_ms = self._config.producer_id_expiration_ms
        if self._dirs[state.log_dir].offline:
            log.go_offline()  # It failed while the log was being made or loaded.
        self.logs[log.topic_partition] = log
        return log

    # -- making and deleting ------------------------------------------------------------------

    def create(self, new_logs: Sequence[NewLog]) -> Later[list[Log]]:
        """Make logs, each in the directory that holds the fewest; done when they are durable.

        Raises KafkaStorageError, and PolicyViolation if there are not enough descriptors.
        """
        return spawn(self._create_balanced(new_logs))

    async def _create_balanced(self, new_logs: Sequence[NewLog]) -> list[Log]:
        self._check_descriptors(len(new_logs))
        counts = {log_dir.path: 0 for log_dir in self._dirs.online}
        if not counts:
            raise KafkaStorageError("every log directory is offline")
        if len(counts) > 1:  # Otherwise a pass over all logs would decide nothing.
            for log in self.logs.values():
                if log.log_dir in counts:
                    counts[log.log_dir] += 1
        share: dict[str, list[NewLog]] = {path: [] for path in counts}
        for new in new_logs:
            path = min(counts, key=lambda path: counts[path])
            counts[path] += 1
            share[path].append(new)
        created = await gather(
            [spawn(self._create(self._dirs[path], news)) for path, news in share.items() if news]
        )
        return [log for logs in created for log in logs]

    def _check_descriptors(self, count: int) -> None:
        """Raise PolicyViolation if there would be more logs than may be written to."""
        descriptors = self._files.descriptors
        if len(self.logs) + count > descriptors.max_logs:
            error = (
                f"cannot create {count} logs: there are {len(self.logs)}, and with "
                f"{descriptors.limit} descriptors this broker may have {descriptors.max_logs}; "
                "delete topics, or raise LimitNOFILE or ulimit -n and restart the broker"
            )
            if self._may_report_refusal("descriptors"):
                self._report("{error}", error=error, level="error")
            raise PolicyViolation(error)

    async def _create(self, log_dir: LogDir, new_logs: Sequence[NewLog]) -> list[Log]:
        expiration_ms = self._config.producer_id_expiration_ms

        def create() -> list[LogState]:
            log_dir.forget([new.topic_partition for new in new_logs])
            return create_logs(
                self._files, log_dir.path, new_logs, producer_id_expiration_ms=expiration_ms
            )

        try:
            states = await self._jobs.submit(log_dir.lane, create)
        except OSError as error:
            self._operation_failed(log_dir.path, error)
            what = f"cannot make a log in {log_dir.path}: {told(error)}"
            raise KafkaStorageError(what) from error
        slices = Slices(self._queue)
        return [self._open(state) async for state in slices.over(states)]

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The open log of a partition."""
        return self.logs.get(topic_partition)

    def delete(self, *of_topic: TopicPartition) -> Later[None]:
        """Close logs and take their directories out of sight; their files go a little later."""
        return spawn(self._delete(of_topic))

    async def _delete(self, of_topic: Sequence[TopicPartition]) -> None:
        by_dir: dict[str, list[Log]] = {one.path: [] for one in self._dirs}
        async for key in Slices(self._queue).over(of_topic):
            log = self.logs.pop(key)
            log.close()
            by_dir[log.log_dir].append(log)
        deletions = [spawn(self._deletions.delete_logs(path, of)) for path, of in by_dir.items()]
        await gather(deletions)

    # -- look-ups that have to wait -----------------------------------------------------------

    def begin_read(self, log: Log, cold: ColdRead) -> Later[None]:
        """Do what a look-up in `log` has to wait for; then it is made again. Fails with OSError."""
        if isinstance(cold, UncheckedSegment):
            return self._index_rebuilds.check(log, cold.segment)
        return self._jobs.submit(_read_lane(log.log_dir), cold.warm)

    def check_suspects(self, log: Log) -> None:
        """A job has looked something up in `log`: rebuild the indexes it found to be wrong."""
        self._index_rebuilds.check_suspects(log)

    # -- housekeeping -------------------------------------------------------------------------

    def update_config(self, config: BrokerConfig) -> None:
        """The broker's settings have changed; what a topic may set itself comes by its `Log`."""
        self._config = config
        for log in self.logs.values():
            log.producer_state.expiration_ms = config.producer_id_expiration_ms

    def apply_retention(self, now_ms: int) -> Later[None]:
        """Let every log delete the segments that its retention settings allow."""
        return self._each("retention", lambda log: log.apply_retention(now_ms))

    def flush_overdue(self, now_ms: float) -> Later[None]:
        """Ask for a sync where ``flush.ms`` has passed since the first unflushed append."""
        return self._each("flush", lambda log: log.flush_if_overdue(now_ms))

    def expire_producers(self, now_ms: float) -> Later[None]:
        """Forget idempotent producers silent for ``producer.id.expiration.ms``.

        `now_ms` is monotonic: silence does not depend on how the wall clock is set.
        """
        return self._each("producer expiration", lambda log: log.producer_state.expire(now_ms))

    def _each(self, task: str, visit: Callable[[Log], object]) -> Later[None]:
        return self.housekeeping.each(task, self.logs.values(), visit)

    def write_recovery_points(self) -> Later[None]:
        """Write recovery-point-offset-checkpoint in every directory."""
        return self._write_everywhere(file_names.RECOVERY_POINT_CHECKPOINT)

    def write_high_watermarks(self) -> Later[None]:
        """Write replication-offset-checkpoint in every directory; never beyond what is durable."""
        return self._write_everywhere(file_names.HIGH_WATERMARK_CHECKPOINT)

    def write_log_starts(self) -> Later[None]:
        """Write log-start-offset-checkpoint in every directory."""
        return self._write_everywhere(file_names.LOG_START_OFFSET_CHECKPOINT)

    def write_log_start_of(self, log: Log) -> Later[bool]:
        """Make the start of `log` durable; whether it is. If not, a crash may undo deletions."""
        written = self._dirs[log.log_dir].log_starts.get(log.topic_partition, 0)
        if written >= log.log_start_offset:
            return ready(True)
        return self._log_start_writes.written(log.log_dir)

    async def _note_log_starts(self, path: str) -> bool:
        return await self._checkpoints.write(
            self._dirs[path], file_names.LOG_START_OFFSET_CHECKPOINT
        )

    def _write_everywhere(self, name: str) -> Later[None]:
        return spawn(self._checkpoints.write_in_each(self._dirs.online, name))

    def _logs_in(self, log_dir: str) -> list[Log]:
        return [log for log in self.logs.values() if log.log_dir == log_dir]

    # -- failure ------------------------------------------------------------------------------

    def _syncs_failed(self, log_dirs: Sequence[str], error: OSError) -> None:
        for log_dir in log_dirs:
            self.storage_failed(log_dir, error)

    def _operation_failed(self, path: str, error: OSError) -> None:
        """A full disk only refuses writes, and says so once in a while; else it has failed."""
        if not is_refusal(error):
            self.storage_failed(path, error)
            return
        if self._may_report_refusal(path):
            text = "writes to {log_dir} are refused: {error}"
            self._report(text, log_dir=path, error=told(error), level="error")

    def _report_bug(self, where: str, error: Exception) -> None:
        text = "unexpected error: {where}: {error}"
        self._report(text, where=where, error=repr(error), level="error")

    def _may_report_refusal(self, what: str) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._refusals_quiet_until_ms.get(what, 0.0):
            return False
        self._refusals_quiet_until_ms[what] = now_ms + _REFUSAL_INTERVAL_MS
        return True

    def storage_failed(self, path: str, error: OSError) -> None:
        """Take a log directory offline until the broker is restarted; harmless the second time."""
        log_dir = self._dirs[path]
        if log_dir.offline:
            return
        log_dir.offline = True
        if isinstance(error.__cause__, Exception) and not isinstance(error.__cause__, OSError):
            self._on_bug(f"log directory {path}", error.__cause__)
        logs = self._logs_in(path)
        for log in logs:
            log.go_offline()
        self._report(
            "log directory {log_dir} goes offline: {error}; mend the disk and restart the broker",
            log_dir=path,
            error=told(error),
            level="error",
        )
        self.on_offline(path, logs)
        if not self._dirs.online:
            self.on_last_offline()

    # -- the end ------------------------------------------------------------------------------

    def shutdown(self) -> Later[None]:
        """Make everything durable, close it, and leave the mark of a clean stop."""
        return spawn(self._shutdown())

    async def _shutdown(self) -> None:
        for rounds in self._dirs.sync_rounds:
            await rounds.idle()  # What a slow disk has not taken yet will ask for a sync, or not.
        for log in self.logs.values():
            if log.has_unflushed and not log.offline:
                log.request_sync()
        for rounds in self._dirs.sync_rounds:
            await rounds.idle()
        for log_dir in self._dirs.online:
            # After the seals in progress: one that fails takes the directory offline.
            await self._jobs.submit(log_dir.lane, _nothing)
            while self._sealing.is_running(log_dir.path):
                await self._jobs.submit(log_dir.lane, _nothing)
            if not log_dir.offline:
                await self._close_logs(log_dir)
                await self._jobs.submit(_read_lane(log_dir.path), _nothing)
        for log_dir in self._dirs:
            log_dir.release()

    async def _close_logs(self, log_dir: LogDir) -> None:
        """Close all logs of a directory; with a clean mark, unless something speaks against it."""
        closings = [
            self._jobs.submit(self._loading.lane(log_dir), log.close_durably)
            for log in self._logs_in(log_dir.path)
        ]
        try:
            await gather(closings)
            if self._is_loaded:
                await self._checkpoints.write_final(log_dir)
                return
            reason = "not all logs were loaded"
        except (OSError, PlogError) as error:
            reason = str(error)
        except Exception as error:  # A bug costs this directory its mark, and no other anything.
            reason = repr(error)
        if self.logs or self._loading.has_begun:  # Else the start was refused, and has said why.
            text = "no clean stop of {log_dir}: {reason}"
            self._report(text, log_dir=log_dir.path, reason=reason, level="warn")


def _read_lane(log_dir: str) -> str:
    return f"read:{log_dir}"


def _nothing() -> None:
    """A job that ends when those before it have."""
