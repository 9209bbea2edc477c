"""Loading all the logs in a broker's log directories, and what to do with those that do not fit.

A directory of no known partition is put aside; a known partition whose directory is gone is told
of, and goes on where its offsets ended, as far as the checkpoints know that. Loading one log is
log_recovery.py's work; who owns the loaded logs is log_manager.py, which calls this at the start.

Called on the reactor's thread; whatever touches a directory runs as a job on one of that
directory's lanes. Source: Kafka 3.9 LogManager.loadLogs.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection

from plog.types import TopicPartition, uuid_to_text
from plogd.config import BrokerConfig
from plogd.log import file_names
from plogd.log.creation import put_aside
from plogd.log.disk.checkpoint_files import write_topic_id
from plogd.log.disk.log_dir import LogDir
from plogd.log.disk.log_dirs import LogDirs, claim
from plogd.log.io_errors import is_refusal
from plogd.log.log_state import LogState
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.log_discovery import FoundLog, KnownTopic, TopicOf, find_logs, surest_first
from plogd.log.recovery.log_recovery import load_log
from plogd.ports import Clock, Files, Jobs, Later, Random, Report, gather, spawn


class LogLoader:
    """See the module's text. `loaded(state)` gets every log; `storage_failed` failed disks."""

    def __init__(
        self,
        dirs: LogDirs,
        *,
        config: Callable[[], BrokerConfig],
        clock: Clock,
        files: Files,
        random: Random,
        jobs: Jobs,
        report: Report,
        loaded: Callable[[LogState], object],
        storage_failed: Callable[[str, OSError], None],
    ) -> None:
        self._dirs = dirs
        self._config = config
        self._clock = clock
        self._files = files
        self._random = random
        self._jobs = jobs
        self._report = report
        self._loaded = loaded
        self._storage_failed = storage_failed
        self._lanes_given = 0

    @property
    def has_begun(self) -> bool:
        """Whether any log was asked for."""
        return bool(self._lanes_given)

    def lane(self, log_dir: LogDir) -> str:
        """One of ``num.recovery.threads.per.data.dir`` lanes, in turn."""
        self._lanes_given += 1
        lane = self._lanes_given % self._config().num_recovery_threads_per_data_dir
        return f"{log_dir.lane}:{lane}"

    async def load(self, log_dir: LogDir, key: TopicPartition, topic: KnownTopic) -> None:
        """Load one log whose directory is there. Raises OSError."""
        request = LoadRequest(
            topic_partition=key,
            topic_id=topic.topic_id,
            directory=_directory(log_dir, key),
            log_dir=log_dir.path,
            config=topic.config,
            leader_epoch=topic.leader_epoch,
            clean=log_dir.was_clean,
            recovery_point=log_dir.recovery_points.get(key, 0),
            high_watermark=log_dir.high_watermarks.get(key, 0),
            log_start_offset=log_dir.log_starts.get(key, 0),
            knows_log_start=key in log_dir.log_starts,
            producer_id_expiration_ms=self._config().producer_id_expiration_ms,
            now_ms=self._clock.now_ms(),
            monotonic_ms=self._clock.monotonic_ms(),
        )
        state = await self._jobs.submit(
            self.lane(log_dir), lambda: load_log(self._files, request, self._report)
        )
        self._loaded(state)

    async def load_all(
        self, topic_of: TopicOf, already: Collection[tuple[TopicPartition, str]]
    ) -> None:
        """Load what is in all directories, but for the logs `already` loaded, with their paths.

        Raises LogDirUnusable when two directories hold the same partition.
        """
        path_by_partition = dict(already)
        everything = [found for log_dir in self._dirs.online for found in await self._find(log_dir)]
        loads: list[Later[None]] = []
        for found in surest_first(everything):
            key = found.topic_partition
            if path_by_partition.get(key) == found.log_dir.path:
                continue  # The metadata log.
            topic = topic_of(key)
            is_spare = found.topic_id is None and key in path_by_partition
            if is_spare or not found.is_of(topic):
                topic = None
            if topic is not None or any(key == one for one, _ in already):
                claim(path_by_partition, key, found.log_dir.path)
            loads.append(spawn(self._load_or_put_aside(found, topic)))
        if not self._dirs.offline_paths:  # Else it may lie in there.
            loads += self._go_on_without(topic_of, path_by_partition.keys())
        await gather(loads)

    async def _find(self, log_dir: LogDir) -> list[FoundLog]:
        try:
            return await self._jobs.submit(
                log_dir.lane, lambda: find_logs(self._files, log_dir, self._report)
            )
        except OSError as error:
            self._storage_failed(log_dir.path, error)
            return []

    async def _load_or_put_aside(self, found: FoundLog, topic: KnownTopic | None) -> None:
        try:
            if topic is None:
                await self._put_aside(found)
                return
            if found.topic_id is None:
                await self._adopt(found, topic)
            await self.load(found.log_dir, found.topic_partition, topic)
        except OSError as error:
            self._storage_failed(found.log_dir.path, error)

    async def _adopt(self, found: FoundLog, topic: KnownTopic) -> None:
        """Take a log by its name alone, and write down whose it is."""
        directory = _directory(found.log_dir, found.topic_partition)
        self._report(
            "{directory}: its partition.metadata is missing or damaged; it is taken for the topic "
            "of that name, and the file is written anew",
            directory=directory,
            level="warn",
        )

        def write() -> None:
            try:
                write_topic_id(self._files, directory, topic.topic_id)
            except OSError as error:
                if not is_refusal(error):  # No room for it: the next start takes it by its name.
                    raise

        await self._jobs.submit(found.log_dir.lane, write)

    async def _put_aside(self, found: FoundLog) -> None:
        log_dir, unique_id = found.log_dir, self._random.random_bytes(16).hex()
        aside = await self._jobs.submit(
            log_dir.lane,
            lambda: put_aside(self._files, log_dir.path, found.topic_partition, unique_id),
        )
        topic_id = uuid_to_text(found.topic_id) if found.topic_id else "not readable"
        what = f"renamed to {aside}" if aside else "removed, as nothing was ever written to it"
        self._report(
            "{topic_partition} in {log_dir} is no known partition (its topic id is {topic_id}): "
            "{what}",
            topic_partition=str(found.topic_partition),
            log_dir=log_dir.path,
            topic_id=topic_id,
            what=what,
            level="warn" if aside else "info",
        )

    # -- directories that are gone ------------------------------------------------------------

    def _go_on_without(
        self, topic_of: TopicOf, found: Collection[TopicPartition]
    ) -> list[Later[None]]:
        """Make anew the logs whose directory is gone but of which the checkpoints know."""
        loads: list[Later[None]] = []
        claimed = set(found)
        for log_dir in self._dirs.online:
            for key in sorted({*log_dir.high_watermarks, *log_dir.recovery_points} - claimed):
                topic = topic_of(key)
                # Else the entry may be of an earlier topic of that name, and the new one's
                # directory was not made yet when the broker was killed.
                if topic is not None and (topic.outlived_a_start or log_dir.was_clean):
                    claimed.add(key)
                    loads.append(spawn(self._make_again(log_dir, key, topic)))
        return loads

    async def _make_again(self, log_dir: LogDir, key: TopicPartition, topic: KnownTopic) -> None:
        directory = _directory(log_dir, key)
        self._report(
            "{directory} is gone: {topic_partition} begins anew, empty, behind the offsets it had "
            "as far as they are known. If there is a copy of the directory, stop the broker, put "
            "it in the place of the new one, and start again",
            directory=directory,
            topic_partition=str(key),
            level="error",
        )

        def make() -> None:
            self._files.mkdir(directory)
            write_topic_id(self._files, directory, topic.topic_id)
            self._files.sync_dir(log_dir.path)

        try:
            await self._jobs.submit(log_dir.lane, make)
            await self.load(log_dir, key, topic)
        except OSError as error:
            self._storage_failed(log_dir.path, error)


def _directory(log_dir: LogDir, key: TopicPartition) -> str:
    return posixpath.join(log_dir.path, file_names.partition_dir_name(key))
