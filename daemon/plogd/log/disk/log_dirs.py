"""All log directories of a broker: their identity, state and sync rounds.

`LogDirs` contains a `LogDir` for each entry of ``log.dirs``, and a `SyncRounds` for each file
system. log_manager.py manages the logs in the directories.

Called on the reactor's thread; file access runs in jobs on a directory's lane. Source: Kafka 3.9
LogManager, MetaPropertiesEnsemble. Invariant: the meta.properties of every directory in use has
this broker's cluster id and node id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from plog.errors import PlogError
from plog.types import ZERO_UUID, TopicPartition, Uuid, uuid_from_text, uuid_to_text
from plogd.config import BrokerConfig
from plogd.log.disk.bound_call import bind
from plogd.log.disk.checkpoint_files import MetaProperties
from plogd.log.disk.group_commit import SyncRounds
from plogd.log.disk.log_dir import LogDir, LogDirUnusable
from plogd.log.disk.slow_disk import SlowDisk
from plogd.log.io_errors import describe
from plogd.ports import Later, Ports, ready

ClusterId: TypeAlias = Callable[[str, str], Later[str]]


def known_or_new(known: str, new: str) -> Later[str]:
    """Return the id of the cluster for a broker that is alone: `known` unless it is empty."""
    return ready(known or new)


class LogDirs:
    """The log directories of a broker; iterates in the order of ``log.dirs``."""

    def __init__(
        self,
        config: BrokerConfig,
        log_dirs: Sequence[LogDir],
        ports: Ports,
        *,
        on_failure: Callable[[Sequence[str], OSError], None],
    ) -> None:
        self._config = config
        self._ports = ports
        self._files = ports.files
        self._random = ports.random
        self._jobs = ports.jobs
        self._report = ports.report
        self._on_failure = on_failure
        self._dirs = {log_dir.path: log_dir for log_dir in log_dirs}
        self._writes = {
            log_dir.path: SlowDisk(log_dir.path, log_dir.lane, ports) for log_dir in log_dirs
        }
        self._rounds: dict[int, SyncRounds] = {}
        self._rounds_by_path: dict[str, SyncRounds] = {}
        self._failures: list[str] = []
        """The directories that could not be opened, each with the reason."""
        self.cluster_id = ""
        self.remedy: Callable[[str, OSError], str] = lambda log_dir, error: ""
        """Returns the remedy for an error in a directory; "" if none is known."""

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self._dirs.values())

    def __getitem__(self, path: str) -> LogDir:
        return self._dirs[path]

    @property
    def online(self) -> list[LogDir]:
        """The directories in use."""
        return [log_dir for log_dir in self if not log_dir.offline]

    @property
    def offline_paths(self) -> list[str]:
        """The paths of the failed directories."""
        return [log_dir.path for log_dir in self if log_dir.offline]

    @property
    def sync_rounds(self) -> list[SyncRounds]:
        """The sync rounds, one `SyncRounds` per file system."""
        return list(self._rounds.values())

    def directory_id(self, path: str) -> Uuid:
        """Return the directory id from a directory's meta.properties; available after `open`."""
        identity = self._dirs[path].identity
        return ZERO_UUID if identity is None else uuid_from_text(identity.directory_id)

    def rounds_of(self, path: str) -> SyncRounds:
        """Return the sync rounds for the file system that contains a directory."""
        return self._rounds_by_path[path]

    def writes_of(self, path: str) -> SlowDisk:
        """Return a directory's `SlowDisk`, which determines whether jobs write to the directory."""
        return self._writes[path]

    async def open(self, cluster_id: ClusterId = known_or_new) -> None:
        """Lock and read every directory, and check that all belong to this broker.

        `cluster_id` returns the id of this broker's cluster, or fails with a PlogError. It gets
        the id in the directories and "". If all directories are new, it gets "" and a new id.

        Raises LogDirUnusable, and releases all locks, if a directory is in use by another broker or
        belongs to another cluster or broker, or if all directories fail.
        """
        try:
            await self._take_over(cluster_id)
        except PlogError:
            for log_dir in self:
                log_dir.release()
            raise

    async def _take_over(self, cluster_id: ClusterId) -> None:
        for log_dir in self._dirs.values():
            await self._try(log_dir, log_dir.open)
        self._check_any_online()
        # Before `take_over` changes any directory, because one may belong to another broker.
        known = self._agree_on_identity()
        await self._check_stores()
        new = "" if known else uuid_to_text(self._random.random_bytes(16))
        self.cluster_id = await cluster_id(known, new)
        for log_dir in self.online:
            if log_dir.identity is None:
                # Before `take_over`, which writes the missing file.
                await self._try(log_dir, bind(self._report_missing_identity, log_dir))
        for log_dir in self.online:
            identity = MetaProperties(
                cluster_id=self.cluster_id,
                node_id=self._config.node_id,
                directory_id=self._directory_id(log_dir),
                version=1 if self._config.has_embedded_store else 0,
            )
            await self._try(log_dir, bind(log_dir.take_over, identity))
        self._check_any_online()
        self._make_sync_rounds()

    async def _try(self, log_dir: LogDir, job: Callable[[], None]) -> None:
        """Run a job on a directory's lane; an OSError takes only this directory offline."""
        try:
            await self._jobs.submit(log_dir.lane, job)
        except OSError as error:
            problem = self.explain(log_dir.path, error)
            self._failures.append(f"{log_dir.path}: {problem}")
            self._report(
                "cannot use log directory {log_dir}: {error}",
                log_dir=log_dir.path,
                error=problem,
                level="error",
            )
            log_dir.offline = True
            log_dir.release()

    def _check_any_online(self) -> None:
        # As in Kafka (KIP-112), failed directories are tolerated while another one is usable.
        if not self.online:
            raise LogDirUnusable(
                f"cannot use any directory in log.dirs: {', '.join(self._failures)}"
            )

    def explain(self, path: str, error: OSError, default_remedy: str = "") -> str:
        """Return the text for an error in the directory `path`, with a remedy if one is known."""
        text = describe(error)
        # If `describe` has added a remedy, it is more specific than the default.
        remedy = self.remedy(path, error) or (default_remedy if text == str(error) else "")
        return f"{text}; {remedy}" if remedy else text

    def _agree_on_identity(self) -> str:
        """Return the cluster id in the directories; "" if none has one. Raises LogDirUnusable."""
        cluster_id = ""
        known = [log_dir for log_dir in self.online if log_dir.identity is not None]
        # The first directory with an identity determines the cluster; all others must match it.
        for log_dir in known:
            assert log_dir.identity is not None
            cluster_id = cluster_id or log_dir.identity.cluster_id or ""
            if log_dir.identity.cluster_id not in (None, cluster_id):
                raise LogDirUnusable(
                    f"{log_dir.path} belongs to cluster {log_dir.identity.cluster_id}, but "
                    f"{known[0].path} belongs to {cluster_id}; correct log.dirs"
                )
            node_id = log_dir.identity.node_id
            if node_id not in (None, self._config.node_id):
                raise LogDirUnusable(
                    f"{log_dir.path} belongs to broker {node_id}, but node.id is"
                    f" {self._config.node_id}; set node.id={node_id} to continue using its data,"
                    " or change log.dirs"
                )
        # If this startup chose a new cluster id, the failed directories would not match it once
        # they are repaired, and could not be used again.
        if not cluster_id and self.offline_paths:
            raise LogDirUnusable(
                "cannot determine the cluster id: no online log directory contains it, and "
                f"{', '.join(self.offline_paths)} cannot be used; repair the failed disks first"
            )
        return cluster_id

    async def _check_stores(self) -> None:
        """Check that the directories are from a broker with the same kind of metadata store."""
        is_embedded = self._config.has_embedded_store
        by_version = {each.identity.version: each for each in self.online if each.identity}
        if is_embedded and 0 not in by_version:
            return
        # Without meta.properties, the metadata log shows where the metadata was.
        holders = [
            log_dir
            for log_dir in self.online
            if await self._jobs.submit(log_dir.lane, log_dir.holds_metadata_log)
        ]
        if is_embedded and not holders:
            raise LogDirUnusable(
                f"{by_version[0].path} belongs to a broker whose metadata is in ZooKeeper"
                " (meta.properties has version 0); set plog.metadata.store=zookeeper and"
                " zookeeper.connect, or run plog storage import"
            )
        if not is_embedded and (holders or 1 in by_version):
            raise LogDirUnusable(
                f"{(by_version.get(1) or holders[0]).path} belongs to a broker whose metadata is"
                " not in ZooKeeper (KRaft, or plog.metadata.store=embedded); set"
                " plog.metadata.store=embedded, or change log.dirs"
            )

    def _report_missing_identity(self, log_dir: LogDir) -> None:
        """Report a directory that contains partitions but no meta.properties. Runs as a job."""
        if log_dir.holds_partitions():
            self._report(
                "cannot find meta.properties in {log_dir}, which contains partitions: wrote a new"
                " file, which assigns the directory to broker {node_id} of cluster {cluster_id};"
                " if that is wrong, stop the broker and restore the file from a backup",
                log_dir=log_dir.path,
                node_id=self._config.node_id,
                cluster_id=self.cluster_id,
                level="error",
            )

    def _directory_id(self, log_dir: LogDir) -> str:
        if log_dir.identity is not None and log_dir.identity.directory_id:
            return log_dir.identity.directory_id
        if not self._config.has_embedded_store:
            return ""  # As in Kafka, whose brokers in ZooKeeper mode do not have them.
        # New, or from an older Kafka version, which had no directory ids (KIP-858).
        return uuid_to_text(self._random.random_bytes(16))

    def _make_sync_rounds(self) -> None:
        # One per file system, because syncfs syncs all directories on a file system.
        dirs_by_device: dict[int, list[str]] = {}
        for log_dir in self.online:
            dirs_by_device.setdefault(self._files.device(log_dir.path), []).append(log_dir.path)
        for device, log_dirs in dirs_by_device.items():
            self._rounds[device] = SyncRounds(
                self._ports,
                log_dirs=log_dirs,
                on_failure=self._on_failure,
                max_unsynced_bytes=self._config.plog_unsynced_max_bytes,
                use_sync_fs=self._config.plog_flush_syncfs != "never",
            )
            for path in log_dirs:
                self._rounds_by_path[path] = self._rounds[device]


def claim(
    path_by_partition: dict[TopicPartition, str], topic_partition: TopicPartition, path: str
) -> None:
    """Record that `path` contains a partition. Raises LogDirUnusable if another path does."""
    # The broker cannot know which copy is complete, so the operator has to decide.
    other_path = path_by_partition.setdefault(topic_partition, path)
    if other_path != path:
        raise LogDirUnusable(
            f"cannot load {topic_partition}: both {other_path} and {path} contain it; move the "
            "wrong directory elsewhere"
        )
