"""All logs of a broker: loading them, making and deleting them, and their log directories.

Owns the map from partition to `Log`. The directories themselves are log_dirs.py's business, what
topics should exist is the metadata's, and what happens inside one log is `Log`'s.

Called on the reactor's thread; whatever touches a directory runs as a job on that directory's
lane. Start: `open_directories`, then `load_metadata_log`, then `load_logs` with what the metadata
knows.

Source: Kafka 3.9 LogManager.
Invariants: recovery points and high watermarks are written as a whole per directory; a directory
that failed once is not written again in this process.
"""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from plog.errors import KafkaStorageError, PlogError
from plog.types import TopicPartition, Uuid, uuid_to_text
from plogd.config import BrokerConfig
from plogd.log import names
from plogd.log.binding import bind
from plogd.log.deletion import Deletions, lane_of, remove_tree
from plogd.log.flush import SyncRounds
from plogd.log.log import Log, LogHooks, LogState
from plogd.log.log_dir import LogDir, LogDirUnusable
from plogd.log.log_dirs import LogDirs
from plogd.log.log_segment import LogSegment
from plogd.log.recovery import LoadRequest, create_logs, load_log, topic_id_of
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
    silence,
    spawn,
)
from plogd.topic_config import TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLog:
    """A log to be made."""

    topic_partition: TopicPartition
    topic_id: Uuid
    config: TopicConfig


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
        report: Report = silence,
    ) -> None:
        self._config = config
        self._clock = clock
        self._files = files
        self._random = random
        self._jobs = jobs
        self._report = report
        self._loads_begun = 0
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
            report=report,
            on_failure=self._syncs_failed,
        )
        self._deletions = Deletions(
            files=files,
            jobs=jobs,
            timers=timers,
            random=random,
            report=report,
            write_log_starts=self._write_log_starts,
            storage_failed=self.storage_failed,
        )
        self._hooks = LogHooks(
            seal=self._seal,
            retire=self._deletions.retire,
            storage_failed=self.storage_failed,
            report=report,
        )

    # -- directories --------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The cluster this broker is of; known once `open_directories` is done."""
        return self._dirs.cluster_id

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
        name = names.partition_dir_name(topic_partition)
        for log_dir in self._dirs.online:
            if self._files.exists(posixpath.join(log_dir.path, name)):
                return await self._load(log_dir, topic_partition, topic_id, config)
        if self._dirs.offline_paths:
            raise LogDirUnusable(
                f"{name} may lie in {', '.join(self._dirs.offline_paths)}, which cannot be used: "
                "mend that directory first, or this broker would start as a new, empty one"
            )
        new = NewLog(topic_partition=topic_partition, topic_id=topic_id, config=config)
        [log] = await self._create(self._dirs.online[0], [new])
        return log

    def load_logs(
        self, config_of: Callable[[TopicPartition, Uuid], TopicConfig | None]
    ) -> Later[None]:
        """Load every other log; where `config_of` knows no such topic, put its directory aside.

        Directories that wait to be deleted are removed. A stray one (its topic id is unknown) gets
        a ``-stray`` name and stays on disk for people to look at.
        """
        return spawn(self._load_logs(config_of))

    async def _load_logs(
        self, config_of: Callable[[TopicPartition, Uuid], TopicConfig | None]
    ) -> None:
        loads: list[Later[None]] = []
        for log_dir in self._dirs.online:
            found = await self._jobs.submit(log_dir.lane, bind(self._find_logs, log_dir))
            for topic_partition, topic_id in found:
                if topic_partition in self.logs:
                    continue
                config = config_of(topic_partition, topic_id)
                loads.append(
                    spawn(self._load_or_put_aside(log_dir, topic_partition, topic_id, config))
                )
        await gather(loads)

    def _find_logs(self, log_dir: LogDir) -> list[tuple[TopicPartition, Uuid]]:
        """A job: the partition directories of one log directory, and their topic ids."""
        found: list[tuple[TopicPartition, Uuid]] = []
        for name in self._files.listdir(log_dir.path):
            path = posixpath.join(log_dir.path, name)
            parsed = names.parse_partition_dir_name(name)
            if parsed is None or not self._files.is_dir(path):
                continue
            if parsed.state == names.DELETE_DIR_SUFFIX:
                remove_tree(self._files, path)
            elif not parsed.state:
                found.append((parsed.topic_partition, topic_id_of(self._files, path)))
        return found

    async def _load_or_put_aside(
        self,
        log_dir: LogDir,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig | None,
    ) -> None:
        if config is not None:
            await self._load(log_dir, topic_partition, topic_id, config)
            return
        path = posixpath.join(log_dir.path, names.partition_dir_name(topic_partition))
        unique_id = self._random.random_bytes(16).hex()
        aside = f"{path}.{unique_id}{names.STRAY_DIR_SUFFIX}"
        self._report(
            "{path} belongs to no known topic (id {topic_id}): renamed to {aside}",
            path=path,
            topic_id=uuid_to_text(topic_id),
            aside=aside,
        )
        await self._jobs.submit(log_dir.lane, lambda: self._files.rename(path, aside))

    async def _load(
        self,
        log_dir: LogDir,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: TopicConfig,
    ) -> Log:
        request = LoadRequest(
            topic_partition=topic_partition,
            topic_id=topic_id,
            directory=posixpath.join(log_dir.path, names.partition_dir_name(topic_partition)),
            log_dir=log_dir.path,
            config=config,
            clean=log_dir.was_clean,
            recovery_point=log_dir.recovery_points.get(topic_partition, 0),
            high_watermark=log_dir.high_watermarks.get(topic_partition, 0),
            log_start_offset=log_dir.log_starts.get(topic_partition, 0),
            producer_id_expiration_ms=self._config.producer_id_expiration_ms,
            now_ms=self._clock.now_ms(),
        )
        state = await self._jobs.submit(
            self._loading_lane(log_dir), lambda: load_log(self._files, request, self._report)
        )
        return self._open(state)

    def _loading_lane(self, log_dir: LogDir) -> str:
        """One of ``num.recovery.threads.per.data.dir`` lanes, in turn."""
        self._loads_begun += 1
        lane = self._loads_begun % self._config.num_recovery_threads_per_data_dir
        return f"{log_dir.lane}:{lane}"

    def _open(self, state: LogState) -> Log:
        log = Log(
            state,
            files=self._files,
            rounds=self._dirs.rounds_of(state.log_dir),
            hooks=self._hooks,
        )
        log.flush_before_visible = self._config.plog_flush_before_visible
        self.logs[log.topic_partition] = log
        return log

    # -- making and deleting ------------------------------------------------------------------

    def create(self, new_logs: Sequence[NewLog]) -> Later[list[Log]]:
        """Make logs, each in the directory that holds the fewest; done when they are durable.

        Raises KafkaStorageError.
        """
        return spawn(self._create_balanced(new_logs))

    async def _create_balanced(self, new_logs: Sequence[NewLog]) -> list[Log]:
        counts = {log_dir.path: 0 for log_dir in self._dirs.online}
        if not counts:
            raise KafkaStorageError("every log directory is offline")
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

    async def _create(self, log_dir: LogDir, new_logs: Sequence[NewLog]) -> list[Log]:
        requests = [
            LoadRequest(
                topic_partition=new.topic_partition,
                topic_id=new.topic_id,
                directory=posixpath.join(
                    log_dir.path, names.partition_dir_name(new.topic_partition)
                ),
                log_dir=log_dir.path,
                config=new.config,
                clean=True,
                recovery_point=0,
                high_watermark=0,
                log_start_offset=0,
                producer_id_expiration_ms=self._config.producer_id_expiration_ms,
                now_ms=self._clock.now_ms(),
            )
            for new in new_logs
        ]
        try:
            states = await self._jobs.submit(
                log_dir.lane, lambda: create_logs(self._files, log_dir.path, requests)
            )
        except OSError as error:
            raise KafkaStorageError(f"cannot make a log in {log_dir.path}: {error}") from error
        return [self._open(state) for state in states]

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The open log of a partition."""
        return self.logs.get(topic_partition)

    def delete(self, topic_partition: TopicPartition) -> Later[None]:
        """Close a log and take its directory out of sight; its files go a little later."""
        log = self.logs.pop(topic_partition)
        log.close()
        return spawn(self._deletions.delete_log(log))

    # -- housekeeping -------------------------------------------------------------------------

    def apply_retention(self, now_ms: int) -> None:
        """Let every log delete what it may; one that cannot does not keep the others from it."""
        for log in list(self.logs.values()):
            try:
                log.apply_retention(now_ms)
            except KafkaStorageError as error:
                self._report("retention: {error}", error=str(error))

    def flush_overdue(self, now_ms: float) -> None:
        """Ask for a sync where ``flush.ms`` has passed since the first unflushed append."""
        for log in self.logs.values():
            log.flush_if_overdue(now_ms)

    def expire_producers(self, now_ms: int) -> None:
        """Forget idempotent producers not heard of for ``producer.id.expiration.ms``."""
        for log in self.logs.values():
            log.producer_state.remove_expired(now_ms)

    def write_recovery_points(self) -> Later[None]:
        """Write recovery-point-offset-checkpoint in every directory."""
        return spawn(
            self._write_everywhere(names.RECOVERY_POINT_CHECKPOINT, lambda log: log.recovery_point)
        )

    def write_high_watermarks(self) -> Later[None]:
        """Write replication-offset-checkpoint in every directory; never beyond what is durable."""
        return spawn(
            self._write_everywhere(
                names.HIGH_WATERMARK_CHECKPOINT,
                lambda log: min(log.high_watermark, log.durable_end_offset),
            )
        )

    def write_log_starts(self) -> Later[None]:
        """Write log-start-offset-checkpoint in every directory."""
        return spawn(
            self._write_everywhere(
                names.LOG_START_OFFSET_CHECKPOINT, lambda log: log.log_start_offset
            )
        )

    async def _write_everywhere(self, name: str, offset_of: Callable[[Log], int]) -> None:
        for log_dir in self._dirs.online:
            await self._write_checkpoint(log_dir, name, offset_of)

    async def _write_checkpoint(
        self, log_dir: LogDir, name: str, offset_of: Callable[[Log], int]
    ) -> None:
        offsets = {log.topic_partition: offset_of(log) for log in self._logs_in(log_dir.path)}
        try:
            await self._jobs.submit(log_dir.lane, lambda: log_dir.write_offsets(name, offsets))
        except OSError as error:
            self._checkpoint_failed(log_dir, name, error)

    def _checkpoint_failed(self, log_dir: LogDir, name: str, error: OSError) -> None:
        """A full disk leaves the old checkpoint, which is still true; the rest is a failed disk."""
        if is_disk_full(error):
            self._report("no room for {name} in {log_dir}", name=name, log_dir=log_dir.path)
        else:
            self.storage_failed(log_dir.path, error)

    async def _write_log_starts(self, log_dir: str) -> None:
        await self._write_checkpoint(
            self._dirs[log_dir],
            names.LOG_START_OFFSET_CHECKPOINT,
            lambda log: log.log_start_offset,
        )

    def _logs_in(self, log_dir: str) -> list[Log]:
        return [log for log in self.logs.values() if log.log_dir == log_dir]

    def _seal(self, log: Log, segment: LogSegment, end_offset: int) -> None:
        """Make a rolled segment, its indexes, the producers' state and the epochs durable."""
        sync_files = segment.sync_files()
        for file in sync_files:
            file.retain()
        write_snapshot = log.producer_state.prepare_snapshot(end_offset)

        def seal() -> None:
            try:
                for file in sync_files:
                    file.sync()
            finally:
                for file in sync_files:
                    file.close()
            write_snapshot()
            log.leader_epochs.flush()

        def failed(error: Exception) -> None:
            if log.closed:
                return  # Deleted meanwhile: its directory may be gone already.
            cause = error if isinstance(error, OSError) else OSError(f"seal failed: {error!r}")
            self.storage_failed(log.log_dir, cause)

        self._jobs.submit(lane_of(log.log_dir), seal).then(lambda _: log.sealed(segment), failed)

    # -- failure ------------------------------------------------------------------------------

    def _syncs_failed(self, log_dirs: Sequence[str], error: OSError) -> None:
        for log_dir in log_dirs:
            self.storage_failed(log_dir, error)

    def storage_failed(self, path: str, error: OSError) -> None:
        """Take a log directory offline until the broker is restarted; harmless the second time."""
        log_dir = self._dirs[path]
        if log_dir.offline:
            return
        log_dir.offline = True
        logs = self._logs_in(path)
        for log in logs:
            log.go_offline()
        self._report(
            "log directory {log_dir} goes offline: {error}; mend the disk and restart the broker",
            log_dir=path,
            error=str(error),
        )
        self.on_offline(path, logs)
        if not self._dirs.online:
            self.on_last_offline()

    # -- the end ------------------------------------------------------------------------------

    def shutdown(self) -> Later[None]:
        """Make everything durable, close it, and leave the mark of a clean stop."""
        return spawn(self._shutdown())

    async def _shutdown(self) -> None:
        for log in self.logs.values():
            if log.has_unflushed and not log.offline:
                log.request_sync()
        for rounds in self._dirs.sync_rounds:
            await rounds.idle()
        for log_dir in self._dirs.online:
            logs = self._logs_in(log_dir.path)
            try:
                await gather(
                    [
                        self._jobs.submit(self._loading_lane(log_dir), log.close_durably)
                        for log in logs
                    ]
                )
                await self._write_final_checkpoints(log_dir, logs)
            except (OSError, PlogError) as error:
                self._report(
                    "no clean stop of {log_dir}: {error}", log_dir=log_dir.path, error=str(error)
                )
        for log_dir in self._dirs:
            log_dir.release()

    async def _write_final_checkpoints(self, log_dir: LogDir, logs: Sequence[Log]) -> None:
        by_name: Mapping[str, Callable[[Log], int]] = {
            names.RECOVERY_POINT_CHECKPOINT: lambda log: log.recovery_point,
            names.LOG_START_OFFSET_CHECKPOINT: lambda log: log.log_start_offset,
            names.HIGH_WATERMARK_CHECKPOINT: lambda log: min(
                log.high_watermark, log.durable_end_offset
            ),
        }

        def finish() -> None:
            for name, offset_of in by_name.items():
                log_dir.write_offsets(name, {log.topic_partition: offset_of(log) for log in logs})
            log_dir.close(clean=True)

        await self._jobs.submit(log_dir.lane, finish)


def is_disk_full(error: OSError) -> bool:
    """Whether a write was refused for want of space only: nothing is broken."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)
