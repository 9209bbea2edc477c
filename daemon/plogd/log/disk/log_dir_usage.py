"""The logs and the free space in each log directory, for DescribeLogDirs.

Jobs query the file systems, because these calls may block. Log sizes are known in memory. Source:
Kafka 4.3 ReplicaManager.describeLogDirs; KIP-113, KIP-827.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, replace

from plog.errors import KafkaStorageError
from plogd.log.disk.bound_call import bind
from plogd.log.disk.log_dir import LogDir
from plogd.log.log import Log
from plogd.log.log_manager import LogManager
from plogd.ports import DiskSpace, Jobs, gather, spawn


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirUsage:
    """The usage of a log directory: either `error` is set, or `space` and `logs` are."""

    path: str
    """The absolute path."""
    error: KafkaStorageError | None = None
    space: DiskSpace | None = None
    logs: Sequence[Log] = ()


async def usage_of(log_manager: LogManager, jobs: Jobs) -> list[LogDirUsage]:
    """Query all log directories concurrently; return their usage in the order of ``log.dirs``."""
    usages = await gather([spawn(_usage(log_dir, jobs)) for log_dir in log_manager.dirs])
    # Collected after the queries, during which logs may be created and deleted.
    logs: dict[str, list[Log]] = {log_dir.path: [] for log_dir in log_manager.dirs}
    for log in log_manager.logs.values():
        logs[log.log_dir].append(log)
    return [
        usage if usage.error else replace(usage, logs=logs[log_dir.path])
        for log_dir, usage in zip(log_manager.dirs, usages, strict=True)
    ]


async def _usage(log_dir: LogDir, jobs: Jobs) -> LogDirUsage:
    """Return the usage of one log directory without `logs`."""
    path = posixpath.abspath(log_dir.path)
    if log_dir.offline:
        return LogDirUsage(path=path, error=KafkaStorageError(f"{path} is offline"))
    try:
        # On a separate lane, because a deletion may occupy the directory's lane for a long time.
        space = await jobs.submit(f"space:{log_dir.path}", bind(log_dir.files.space, log_dir.path))
    except OSError as error:
        return LogDirUsage(path=path, error=KafkaStorageError(f"{path}: {error}"))
    return LogDirUsage(path=path, space=space)
