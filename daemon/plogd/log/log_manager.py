"""Create, load, maintain, delete and close all logs of a broker.

`LogManager` owns the map from partition to `Log`. disk/log_dirs.py manages log directories,
recovery/log_loader.py finds and loads logs, and log.py implements a single log. The metadata store,
not this module, determines which topics exist.

Called on the reactor's thread; files are created, renamed, synced and deleted by jobs on the lane
of their log directory. At startup, call `open_directories`, `load_metadata_log`, then `load_logs`.

Source: Kafka 3.9 LogManager. Invariants: each checkpoint file covers all partitions in its log
directory; a directory that has failed is never written to again by this process.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Sequence

from plog.errors import KafkaStorageError, PolicyViolation
from plog.types import TopicPartition, Uuid
from plogd.config import BrokerConfig
from plogd.fair_queue import FairQueue, Slices
from plogd.log import file_names
from plogd.log.compaction.log_cleaner import LogCleaner
from plogd.log.creation import NewLog, create_logs, lack_of_descriptors
from plogd.log.deletion import Deletions
from plogd.log.disk.group_commit import SyncRounds
from plogd.log.disk.log_dir import LogDir, LogDirUnusable
from plogd.log.disk.log_dirs import ClusterId, LogDirs, known_or_new
from plogd.log.disk.log_start_checkpoint import LogStartCheckpoint
from plogd.log.disk.offset_checkpoints import OffsetCheckpoints
from plogd.log.disk.write_refusals import WriteRefusals
from plogd.log.housekeeping import Housekeeping
from plogd.log.io_errors import describe, is_out_of_files, is_refusal
from plogd.log.log import Log
from plogd.log.log_loss import LogLosses
from plogd.log.log_state import LogHooks, LogState
from plogd.log.recovery.load_progress import LoadProgress
from plogd.log.recovery.log_discovery import KnownTopic, TopicOf
from plogd.log.recovery.log_loader import LogLoader
from plogd.log.segment.index_rebuild import IndexRebuilds
from plogd.log.segment.log_segment import LogSegment, UncheckedSegment
from plogd.log.segment.open_segments import OpenSegments
from plogd.log.segment.preallocation import Preallocation
from plogd.log.segment.sealing import Sealing
from plogd.log.segment.uncached_lookup import UncachedLookup
from plogd.log.shutdown import Shutdown
from plogd.log.truncation import Truncations
from plogd.ports import Later, Ports, gather, ready, spawn
from plogd.topic_config import TopicConfig


class LogManager:
    """The logs of a broker; `logs` maps each partition to its open log."""

    def __init__(
        self,
        config: BrokerConfig,
        log_dirs: Sequence[str],
        ports: Ports,
        *,
        fair_queue: FairQueue,
        on_bug: Callable[[str, Exception], None] | None = None,
    ) -> None:
        self._config = config
        self._ports = ports
        self._files = ports.files
        self._jobs = ports.jobs
        self._queue = fair_queue
        self._report = ports.report
        self._on_bug = on_bug or self._report_bug
        self._is_loaded = False
        self.refusals = WriteRefusals(ports.clock, ports.report)
        self.logs: dict[TopicPartition, Log] = {}
        self.on_offline: Callable[[str, Sequence[Log]], None] = lambda log_dir, logs: None
        """Called with a failed log directory and its logs."""
        self.on_last_offline: Callable[[], None] = lambda: None
        """Called when the last log directory goes offline."""
        self._dirs = LogDirs(
            config,
            [LogDir(path, ports.files, ports.report) for path in log_dirs],
            ports,
            on_failure=self._syncs_failed,
        )
        self.housekeeping = Housekeeping(ports, operation_failed=self._operation_failed)
        """Runs passes over all logs, and counts the errors in background work."""
        self._checkpoints = OffsetCheckpoints(
            jobs=ports.jobs,
            report=ports.report,
            housekeeping=self.housekeeping,
            logs_in=self._logs_in,
            storage_failed=self.storage_failed,
        )
        self._log_start_writes = LogStartCheckpoint(turn=ports.turn, write=self._note_log_starts)
        self._deletions = self._make_deletions()
        self._index_rebuilds = IndexRebuilds(ports, housekeeping=self.housekeeping)
        self.losses = LogLosses(ports.files, ports.jobs, storage_failed=self.storage_failed)
        self._hooks = self._make_hooks()
        self._loading = self._make_loading()
        self.cleaner = self._make_cleaner()
        """Compacts logs."""
        self._shutdown = Shutdown(
            self._dirs,
            ports,
            loading=self._loading,
            sealing=self._sealing,
            truncations=self._truncations,
            cleaner=self.cleaner,
            checkpoints=self._checkpoints,
        )

    def _make_loading(self) -> LogLoader:
        return LogLoader(
            self._dirs,
            self._ports,
            config=lambda: self._config,
            loaded=self._open,
            storage_failed=self.storage_failed,
        )

    def _make_cleaner(self) -> LogCleaner:
        return LogCleaner(
            self._ports,
            self._dirs,
            config=lambda: self._config,
            logs=self.logs.values,
            fair_queue=self._queue,
            housekeeping=self.housekeeping,
            write_recovery_points=lambda path: self._checkpoints.write(
                self._dirs[path], file_names.RECOVERY_POINT_CHECKPOINT
            ),
            storage_failed=self.storage_failed,
        )

    def _make_deletions(self) -> Deletions:
        return Deletions(
            self._ports,
            fair_queue=self._queue,
            housekeeping=self.housekeeping,
            write_log_starts=self._note_log_starts,
            storage_failed=self.storage_failed,
        )

    def _make_hooks(self) -> LogHooks[Log]:
        self._sealing = Sealing(
            jobs=self._jobs,
            timers=self._ports.timers,
            housekeeping=self.housekeeping,
            index_rebuilds=self._index_rebuilds,
            storage_failed=self.storage_failed,
            unsealed=lambda path, change: self._dirs.writes_of(path).unsealed(change),
        )
        self._preallocation = Preallocation(
            self._ports,
            self._queue,
            max_bytes=self._config.plog_log_preallocate_bytes,
            on_bug=self._on_bug,
        )
        self._open_segments = OpenSegments(self._ports, on_bug=self._on_bug)
        self._truncations = Truncations(
            self._ports,
            sealing=self._sealing,
            pause_cleaning=lambda log: self.cleaner.pause(log),
            resume_cleaning=lambda log: self.cleaner.resume(log),
            lower_cleaned_end=lambda log, offset: self.cleaner.truncated(log, offset),
            write_checkpoint=lambda path, name: self._checkpoints.write(
                self._dirs[path], name, always=True
            ),
        )
        return LogHooks(
            seal=self._sealing.seal,
            retire=self._retire,
            truncate=self._truncations.truncate,
            preallocate=self._extended,
            operation_failed=self._operation_failed,
            report=self._report,
            on_bug=self._on_bug,
        )

    def _extended(self, log: Log, segment: LogSegment) -> None:
        self._open_segments.written(log)
        self._preallocation.extend(log, segment)

    def _retire(self, log: Log, segments: Sequence[LogSegment]) -> None:
        """Delete the files of segments removed from `log`, after their pending seals."""
        restarts = log.restarts
        self._sealing.after_seals(
            log, segments, lambda: self._deletions.retire(log, segments, restarts)
        )

    # -- directories --------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The id of this broker's cluster; available after `open_directories`."""
        return self._dirs.cluster_id

    @property
    def dirs(self) -> LogDirs:
        """The log directories."""
        return self._dirs

    @property
    def offline_dirs(self) -> list[str]:
        """The paths of the failed log directories."""
        return self._dirs.offline_paths

    @property
    def sync_rounds(self) -> list[SyncRounds]:
        """The group commit of each file system, for metrics."""
        return self._dirs.sync_rounds

    def open_directories(self, cluster_id: ClusterId = known_or_new) -> Later[None]:
        """Lock and check every log directory. Raises LogDirUnusable; see `LogDirs.open`."""
        return spawn(self._dirs.open(cluster_id))

    # -- loading ------------------------------------------------------------------------------

    def load_metadata_log(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: TopicConfig
    ) -> Later[Log]:
        """Load the embedded store's log, or create it if no directory contains it."""
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
                    why = self._dirs.explain(log_dir.path, error)
                    raise LogDirUnusable(f"cannot read {name}: {why}") from error
        if self._dirs.offline_paths:
            raise LogDirUnusable(
                f"cannot find {name}: it may be in an offline log directory "
                f"({', '.join(self._dirs.offline_paths)}); repair that directory: without it, this "
                "broker would start empty"
            )
        for log_dir in self._dirs.online:
            if await self._jobs.submit(log_dir.lane, log_dir.holds_partitions):
                raise LogDirUnusable(
                    f"cannot find {name} in log.dirs: {log_dir.path} contains partitions; add the"
                    f" directory that contains {name}: otherwise, this broker would start empty"
                )
        new = NewLog(topic_partition=topic_partition, topic_id=topic_id, config=config)
        [log] = await self._create(self._dirs.online[0], [new])
        return log

    def load_logs(self, topic_of: TopicOf) -> Later[None]:
        """Load the other logs; rename the directories of unknown topics to ``-stray`` names.

        Removes directories that are marked for deletion. A log directory that cannot be read goes
        offline. Raises LogDirUnusable if two log directories contain the same partition.
        """
        return spawn(self._load_logs(topic_of))

    async def _load_logs(self, topic_of: TopicOf) -> None:
        already = [(log.topic_partition, log.log_dir) for log in self.logs.values()]
        await self._loading.load_all(topic_of, already)
        self._is_loaded = True

    @property
    def load_progress(self) -> LoadProgress:
        """The progress of loading the logs."""
        return self._loading.progress

    def stop_loading(self) -> None:
        """Stop the recovery of logs between two batches; `load_logs` then fails (LoadingStopped).

        The next startup recovers these logs. Logs that were closed cleanly are still loaded, which
        takes little time, so that they remain clean.
        """
        if not self._is_loaded:
            self._loading.progress.stop()

    def _open(self, state: LogState) -> Log:
        log = Log(
            state,
            files=self._files,
            rounds=self._dirs.rounds_of(state.log_dir),
            writes=self._dirs.writes_of(state.log_dir),
            hooks=self._hooks,
            flush_before_visible=self._config.plog_flush_before_visible,
        )
        log.producer_state.expiration_ms = self._config.producer_id_expiration_ms
        if self._dirs[state.log_dir].offline:
            log.go_offline()  # The directory failed while a job created or loaded the log.
        self.logs[log.topic_partition] = log
        self.losses.opened(log.topic_partition, state.loss)
        return log

    # -- creating and deleting ----------------------------------------------------------------

    def create(self, new_logs: Sequence[NewLog]) -> Later[list[Log]]:
        """Durably create logs, each in the directory that holds the fewest logs.

        Raises KafkaStorageError, or PolicyViolation if there are too few file descriptors.
        """
        return spawn(self._create_balanced(new_logs))

    async def _create_balanced(self, new_logs: Sequence[NewLog]) -> list[Log]:
        self._check_descriptors(len(new_logs))
        counts = {log_dir.path: 0 for log_dir in self._dirs.online}
        if not counts:
            raise KafkaStorageError("cannot create logs: every log directory is offline")
        if len(counts) > 1:  # With a single directory, there is no choice, so nothing is counted.
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
        """Raise PolicyViolation if the broker has too few file descriptors for `count` new logs."""
        error = lack_of_descriptors(self._files.descriptors, existing=len(self.logs), count=count)
        if error:
            if self.refusals.may_report("descriptors"):
                self._report("{error}", error=error, level="error")
            raise PolicyViolation(error)

    async def _create(self, log_dir: LogDir, new_logs: Sequence[NewLog]) -> list[Log]:
        expiration_ms = self._config.producer_id_expiration_ms

        def create() -> list[LogState]:
            # Otherwise, after a crash, a deleted topic's offsets could apply to the new logs.
            log_dir.forget([new.topic_partition for new in new_logs])
            return create_logs(
                self._files, log_dir.path, new_logs, producer_id_expiration_ms=expiration_ms
            )

        try:
            states = await self._jobs.submit(log_dir.lane, create)
        except OSError as error:
            self._operation_failed(log_dir.path, error)
            what = f"cannot create a log in {log_dir.path}: {describe(error)}"
            raise KafkaStorageError(what) from error
        slices = Slices(self._queue)
        return [self._open(state) async for state in slices.over(states)]

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return the open log of a partition."""
        return self.logs.get(topic_partition)

    def delete(self, *of_topic: TopicPartition) -> Later[None]:
        """Close logs and rename their directories; their files are unlinked later."""
        return spawn(self._remove(of_topic, are_strays=False))

    def remove_strays(self, *strays: TopicPartition) -> Later[None]:
        """Close logs and give their directories ``-stray`` names; their files are kept."""
        return spawn(self._remove(strays, are_strays=True))

    async def _remove(self, of_topic: Sequence[TopicPartition], *, are_strays: bool) -> None:
        by_dir: dict[str, list[Log]] = {one.path: [] for one in self._dirs}
        async for key in Slices(self._queue).over(of_topic):
            log = self.logs.pop(key)
            log.close()  # Before the rename: a closed log does not start jobs in its directory.
            self._truncations.forget(log)
            self._open_segments.forget(log)
            await self.cleaner.forget(log)
            by_dir[log.log_dir].append(log)
        remove = self._deletions.keep_as_strays if are_strays else self._deletions.delete_logs
        await gather([spawn(remove(path, logs)) for path, logs in by_dir.items()])
        for path, deleted in by_dir.items():
            # A log with one of these names may have been created in the meantime.
            gone = {log.topic_partition for log in deleted} - self.logs.keys()
            if not self._dirs[path].offline:
                await self.cleaner.checkpoints.remove(path, gone)

    # -- cold reads ---------------------------------------------------------------------------

    def begin_read(self, log: Log, cold: UncachedLookup) -> Later[None]:
        """Read the data for an uncached lookup, which is then retried. Fails with OSError."""
        if isinstance(cold, UncheckedSegment):
            return self._index_rebuilds.check(log, cold.segment)
        return self._jobs.submit(self._dirs[log.log_dir].read_lane, cold.warm)

    def check_suspects(self, log: Log) -> None:
        """Rebuild any indexes of `log` in which a job's lookup has found a wrong entry."""
        self._index_rebuilds.check_suspects(log)

    # -- housekeeping -------------------------------------------------------------------------

    def update_config(self, config: BrokerConfig) -> None:
        """Apply new broker settings; each `Log` gets its topic's settings separately."""
        self._config = config
        for log in self.logs.values():
            log.producer_state.expiration_ms = config.producer_id_expiration_ms

    def apply_retention(self, now_ms: int) -> Later[None]:
        """Delete the segments that retention selects in each log."""
        return self._each("retention", lambda log: log.apply_retention(now_ms))

    def flush_overdue(self, now_ms: float) -> Later[None]:
        """Request a sync for each log whose oldest unflushed append has waited for ``flush.ms``."""
        return self._each("flush", lambda log: log.flush_if_overdue(now_ms))

    def expire_producers(self, now_ms: float) -> Later[None]:
        """Remove producers that have been inactive for ``producer.id.expiration.ms``.

        `now_ms` is monotonic, so that setting the wall clock does not expire producers.
        """
        return self._each("producer expiration", lambda log: log.producer_state.expire(now_ms))

    def _each(self, task: str, visit: Callable[[Log], object]) -> Later[None]:
        return self.housekeeping.each(task, self.logs.values(), visit)

    def write_recovery_points(self) -> Later[None]:
        """Write recovery-point-offset-checkpoint in every directory."""
        return self._write_everywhere(file_names.RECOVERY_POINT_CHECKPOINT)

    def write_high_watermarks(self) -> Later[None]:
        """Write replication-offset-checkpoint, limited to the durable ends, in every directory."""
        return self._write_everywhere(file_names.HIGH_WATERMARK_CHECKPOINT)

    def write_log_starts(self) -> Later[None]:
        """Write log-start-offset-checkpoint in every directory."""
        return self._write_everywhere(file_names.LOG_START_OFFSET_CHECKPOINT)

    def write_log_start_of(self, log: Log) -> Later[bool]:
        """Durably write the log start offset of `log`; return whether that succeeded."""
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
        """Take the directory offline unless the disk is only full."""
        if not is_refusal(error):
            self.storage_failed(path, error)
            return
        if is_out_of_files(error):
            self._open_segments.close_idle()
        # At most once a minute, because it looks at all logs.
        if self.refusals.note(path, error):
            self._preallocation.release(self._logs_in(path))

    def _report_bug(self, where: str, error: Exception) -> None:
        text = "unexpected error: {where}: {error}"
        self._report(text, where=where, error=repr(error), level="error")

    def storage_failed(self, path: str, error: OSError) -> None:
        """Take a log directory offline until the broker restarts. Idempotent."""
        log_dir = self._dirs[path]
        if log_dir.offline:
            return
        log_dir.offline = True
        # The cause that `storage_error` has wrapped is a bug, so its traceback is logged.
        if isinstance(error.__cause__, Exception) and not isinstance(error.__cause__, OSError):
            self._on_bug(f"log directory {path}", error.__cause__)
        logs = self._logs_in(path)
        for log in logs:
            log.go_offline()
        error_text = self._dirs.explain(path, error, "repair the disk, then restart the broker")
        text = "log directory {log_dir} is offline: {error}"
        self._report(text, log_dir=path, error=error_text, level="error")
        self.on_offline(path, logs)
        if not self._dirs.online:
            self.on_last_offline()

    # -- shutdown -----------------------------------------------------------------------------

    @property
    def closed_logs(self) -> int:
        """Number of logs closed so far during shutdown."""
        return self._shutdown.closed_logs

    def shutdown(self) -> Later[None]:
        """Sync and close all logs, and write the clean shutdown files."""
        return spawn(self._shutdown.run(self.logs.values(), is_loaded=self._is_loaded))
