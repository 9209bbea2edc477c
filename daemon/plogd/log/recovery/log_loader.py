"""Load all logs from a broker's log directories, and handle logs that do not match the metadata.

The directory of an unknown partition gets a ``-stray`` name. If the directory of a known partition
is missing, an error is logged, and an empty log continues at the end offset known from the
checkpoints. If other brokers have replicas, the empty log is marked instead (log_loss.py).
log_recovery.py loads a single log; log_manager.py calls this module at startup and owns the loaded
logs.

Called on the reactor's thread; file access runs in jobs on the directories' lanes. Source: Kafka
3.9 LogManager.loadLogs.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from plog.types import ZERO_UUID, TopicPartition, uuid_to_text
from plogd.config import BrokerConfig
from plogd.log import file_names
from plogd.log.creation import rename_as_stray
from plogd.log.disk.checkpoint_files import write_topic_id
from plogd.log.disk.log_dir import LogDir
from plogd.log.disk.log_dirs import LogDirs, claim
from plogd.log.io_errors import is_refusal
from plogd.log.log_state import LogState
from plogd.log.recovery.load_progress import LoadProgress
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.log_discovery import (
    FoundLog,
    KnownTopic,
    TopicOf,
    bytes_to_scan,
    find_logs,
    with_topic_id_first,
)
from plogd.log.recovery.log_recovery import load_log
from plogd.log.recovery.recovery_processes import RecoveryProcesses
from plogd.log.recovery.recovery_work import Line
from plogd.ports import Later, Ports, gather, spawn


class LogLoader:
    """Loads logs; passes each to `loaded(state)`, and disk errors to `storage_failed`."""

    def __init__(
        self,
        dirs: LogDirs,
        ports: Ports,
        *,
        config: Callable[[], BrokerConfig],
        loaded: Callable[[LogState], object],
        storage_failed: Callable[[str, OSError], None],
    ) -> None:
        self._dirs = dirs
        self._config = config
        self._clock = ports.clock
        self._files = ports.files
        self._random = ports.random
        self._jobs = ports.jobs
        self._report = ports.report
        self._loaded = loaded
        self._storage_failed = storage_failed
        self._lanes_given = 0
        self._lanes: set[str] = set()
        self._recovery = RecoveryProcesses(ports, self._lanes)
        self._bytes_to_scan: dict[str, int] = {}
        """The number of bytes that recovery will scan, by partition directory."""
        self.progress = LoadProgress()

    @property
    def has_begun(self) -> bool:
        """Whether the loading of a log has begun."""
        return bool(self._lanes_given)

    def lane(self, log_dir: LogDir) -> str:
        """Return one of a directory's ``num.recovery.threads.per.data.dir`` lanes, in rotation."""
        self._lanes_given += 1
        number = self._lanes_given % self._config().num_recovery_threads_per_data_dir
        lane = f"{log_dir.lane}:{number}"
        self._lanes.add(lane)
        return lane

    async def end_jobs(self) -> None:
        """Wait until all jobs that load logs have ended, so that no job still uses a file."""
        await gather([self._jobs.submit(lane, _nothing) for lane in sorted(self._lanes)])

    async def load(self, log_dir: LogDir, key: TopicPartition, topic: KnownTopic) -> None:
        """Load a log from its existing directory. Raises OSError or LoadingStopped."""
        await self._load(log_dir, self._request(log_dir, key, topic))

    def _request(self, log_dir: LogDir, key: TopicPartition, topic: KnownTopic) -> LoadRequest:
        """Return the request to load a log, whose progress counts from now on."""
        directory = _directory(log_dir, key)
        return LoadRequest(
            topic_partition=key,
            topic_id=topic.topic_id,
            directory=directory,
            log_dir=log_dir.path,
            config=topic.config,
            leader_epoch=topic.leader_epoch,
            clean=log_dir.was_clean,
            clean_since_ms=log_dir.clean_since_ms,
            recovery_point=log_dir.recovery_points.get(key, 0),
            high_watermark=log_dir.high_watermarks.get(key, 0),
            log_start_offset=log_dir.log_starts.get(key, 0),
            knows_log_start=key in log_dir.log_starts,
            has_other_replicas=topic.has_other_replicas,
            was_compacted=key in log_dir.cleaner_offsets,
            producer_id_expiration_ms=self._config().producer_id_expiration_ms,
            now_ms=self._clock.now_ms(),
            monotonic_ms=self._clock.monotonic_ms(),
            work=self.progress.begin(self._bytes_to_scan.pop(directory, 0)),
        )

    async def _load(
        self, log_dir: LogDir, request: LoadRequest, reported: Collection[Line] = ()
    ) -> None:
        def report(message: str, **fields: object) -> None:
            # The damage that recovery has left is found again.
            if Line(message, fields) not in reported:
                self._report(message, **fields)

        try:
            state = await self._jobs.submit(
                self.lane(log_dir), lambda: load_log(self._files, request, report)
            )
        finally:
            self.progress.end(request.work)
        self._loaded(state)

    async def load_all(
        self, topic_of: TopicOf, already: Collection[tuple[TopicPartition, str]]
    ) -> None:
        """Load the logs in all directories, except the logs in `already` (partition and path).

        Raises LogDirUnusable if two directories contain the same partition, or LoadingStopped.
        """
        path_by_partition = dict(already)
        everything = [found for log_dir in self._dirs.online for found in await self._find(log_dir)]
        # Before any log is loaded, so that the progress report has a total from the beginning.
        await gather([spawn(self._measure(log_dir, everything)) for log_dir in self._dirs.online])
        loads: list[Later[None]] = []
        dirty: dict[str, dict[TopicPartition, KnownTopic]] = {}
        for found in with_topic_id_first(everything):
            key = found.topic_partition
            if path_by_partition.get(key) == found.log_dir.path:
                continue  # The metadata log, which was loaded first.
            topic = topic_of(key)
            if topic is not None and topic.topic_id == ZERO_UUID:
                if found.topic_id is None:
                    # Neither of the two ids can be read, so the directory stays as it is.
                    continue
                topic = replace(topic, topic_id=found.topic_id)
            # Directories with a topic id come first. A directory identified only by its name is
            # stray if another directory contains the partition.
            is_spare = found.topic_id is None and key in path_by_partition
            if is_spare or not found.is_of(topic):
                topic = None
            # A second directory of the metadata log is an error, not a stray directory.
            if topic is not None or any(key == one for one, _ in already):
                claim(path_by_partition, key, found.log_dir.path)
            if topic is not None and found.topic_id is not None and self._is_dirty(found):
                dirty.setdefault(found.log_dir.path, {})[key] = topic
            else:
                loads.append(spawn(self._load_or_move_aside(found, topic)))
        for path, topics in dirty.items():
            loads += self._recover_all(self._dirs[path], topics)
        if not self._dirs.offline_paths:  # A missing log may be in an offline directory.
            loads += self._recreate_missing(topic_of, path_by_partition.keys())
        await gather(loads)

    async def _find(self, log_dir: LogDir) -> list[FoundLog]:
        try:
            return await self._jobs.submit(
                log_dir.lane, lambda: find_logs(self._files, log_dir, self._report)
            )
        except OSError as error:
            self._storage_failed(log_dir.path, error)
            return []

    async def _measure(self, log_dir: LogDir, everything: Collection[FoundLog]) -> None:
        """Compute the number of bytes that recovery will scan, to report the progress."""
        # After a clean stop, nothing has to be scanned.
        if log_dir.was_clean:
            return
        points = {
            _directory(log_dir, found.topic_partition): log_dir.recovery_points.get(
                found.topic_partition, 0
            )
            for found in everything
            if found.log_dir is log_dir
        }

        def measure() -> dict[str, int]:
            return {
                directory: bytes_to_scan(self._files, directory, point)
                for directory, point in points.items()
                if not self.progress.is_stopped
            }

        self._bytes_to_scan |= await self._jobs.submit(log_dir.lane, measure)

    async def _load_or_move_aside(self, found: FoundLog, topic: KnownTopic | None) -> None:
        try:
            if topic is None:
                await self._move_aside(found)
                return
            if found.topic_id is None:
                await self._adopt(found, topic)
            await self.load(found.log_dir, found.topic_partition, topic)
        except OSError as error:
            self._storage_failed(found.log_dir.path, error)

    # -- recovery -----------------------------------------------------------------------------

    def _is_dirty(self, found: FoundLog) -> bool:
        directory = _directory(found.log_dir, found.topic_partition)
        return self._bytes_to_scan.get(directory, 0) > 0

    def _recover_all(
        self, log_dir: LogDir, topics: Mapping[TopicPartition, KnownTopic]
    ) -> list[Later[None]]:
        """Recover and load the logs of a directory, in processes if there is much to scan."""
        shares = self._recovery.shares(
            {key: self._bytes_to_scan[_directory(log_dir, key)] for key in topics},
            self._config().num_recovery_threads_per_data_dir,
        )
        requests = {key: self._request(log_dir, key, topics[key]) for key in topics}
        if not shares:
            return [spawn(self._load_recovered(log_dir, one)) for one in requests.values()]
        return [
            spawn(self._recover_share(log_dir, [requests[key] for key in share]))
            for share in shares
        ]

    async def _recover_share(self, log_dir: LogDir, share: Sequence[LoadRequest]) -> None:
        loads: list[Later[None]] = []

        def load(request: LoadRequest, reported: Collection[Line], error: OSError | None) -> None:
            if error is None or is_refusal(error):
                loads.append(spawn(self._load_recovered(log_dir, request, reported)))
            else:
                self._storage_failed(log_dir.path, error)

        failure: Exception | None = None
        try:
            await self._recovery.recover(share, load)
        except Exception as error:
            failure = error
        await gather(loads)
        if failure is not None:
            raise failure

    async def _load_recovered(
        self, log_dir: LogDir, request: LoadRequest, reported: Collection[Line] = ()
    ) -> None:
        try:
            await self._load(log_dir, request, reported)
        except OSError as error:
            self._storage_failed(log_dir.path, error)

    # -- directories that do not match --------------------------------------------------------

    async def _adopt(self, found: FoundLog, topic: KnownTopic) -> None:
        """Assign a directory to the topic of the same name, and write the topic id."""
        directory = _directory(found.log_dir, found.topic_partition)
        self._report(
            "cannot read partition.metadata in {directory}: wrote a new file, which assigns the"
            " directory to the topic of the same name",
            directory=directory,
            level="warn",
        )

        def write() -> None:
            try:
                write_topic_id(self._files, directory, topic.topic_id)
            except OSError as error:
                if not is_refusal(error):  # On a full disk, the next startup assigns it again.
                    raise

        await self._jobs.submit(found.log_dir.lane, write)

    async def _move_aside(self, found: FoundLog) -> None:
        log_dir, unique_id = found.log_dir, self._random.random_bytes(16).hex()
        aside = await self._jobs.submit(
            log_dir.lane,
            lambda: rename_as_stray(self._files, log_dir.path, found.topic_partition, unique_id),
        )
        topic_id = uuid_to_text(found.topic_id) if found.topic_id else "unreadable"
        what = f"renamed to {aside}" if aside else "removed, because it never contained records"
        self._report(
            "{topic_partition} in {log_dir} is not a known partition (its topic id is "
            "{topic_id}): {what}",
            topic_partition=found.topic_partition,
            log_dir=log_dir.path,
            topic_id=topic_id,
            what=what,
            level="warn" if aside else "info",
        )

    # -- missing directories ------------------------------------------------------------------

    def _recreate_missing(
        self, topic_of: TopicOf, found: Collection[TopicPartition]
    ) -> list[Later[None]]:
        """Recreate the logs that have an entry in a checkpoint but no directory."""
        loads: list[Later[None]] = []
        claimed = set(found)
        for log_dir in self._dirs.online:
            # Sorted, because the order of a set of strings differs between runs.
            for key in sorted({*log_dir.high_watermarks, *log_dir.recovery_points} - claimed):
                topic = topic_of(key)
                if topic is None or topic.topic_id == ZERO_UUID or topic.is_being_deleted:
                    continue
                if topic.has_other_replicas:
                    has_existed = _known_end(log_dir, key) > 0
                else:
                    # Otherwise, the entry may belong to a deleted topic with the same name: the
                    # broker may have been killed before it created the new topic's directory.
                    has_existed = topic.was_on_disk or log_dir.was_clean
                if has_existed:
                    claimed.add(key)
                    loads.append(spawn(self._recreate(log_dir, key, topic)))
        return loads

    async def _recreate(self, log_dir: LogDir, key: TopicPartition, topic: KnownTopic) -> None:
        directory = _directory(log_dir, key)
        self._report(
            "cannot find {directory}: created an empty log for {topic_partition}, {start}; to"
            " recover the records, stop the broker and restore the directory from a backup",
            directory=directory,
            topic_partition=key,
            start="which other replicas can fill"
            if topic.has_other_replicas
            else "starting after its last known offset",
            level="error",
        )

        def make() -> None:
            self._files.mkdir(directory)
            # Without a segment: `load` creates the first one, at the offset known from the
            # checkpoints.
            write_topic_id(self._files, directory, topic.topic_id)
            # `write_topic_id` syncs the names in the new directory, but not its own name.
            self._files.sync_dir(log_dir.path)

        try:
            await self._jobs.submit(log_dir.lane, make)
            await self.load(log_dir, key, topic)
        except OSError as error:
            self._storage_failed(log_dir.path, error)


def _directory(log_dir: LogDir, key: TopicPartition) -> str:
    return posixpath.join(log_dir.path, file_names.partition_dir_name(key))


def _known_end(log_dir: LogDir, key: TopicPartition) -> int:
    """Return the offset below which the checkpoints prove that records existed."""
    return max(log_dir.high_watermarks.get(key, 0), log_dir.recovery_points.get(key, 0))


def _nothing() -> None:
    """Do nothing; the job completes after all earlier jobs of its lane."""
