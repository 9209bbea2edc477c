"""The logs and the free space of each log directory, for DescribeLogDirs.

Querying a file system may block, so it runs in a job. Log sizes come from memory. Source: Kafka 4.3
ReplicaManager.describeLogDirs; KIP-113, KIP-827.
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
    """The usage of a log directory, either with an `error` or with `space` and `logs`."""

    path: str
    """The absolute path."""
    error: KafkaStorageError | None = None
    space: DiskSpace | None = None
    logs: Sequence[Log] = ()


async def usage_of(log_manager: LogManager, jobs: Jobs) -> list[LogDirUsage]:
    """Return the usage of each log directory in the order of ``log.dirs``, queried concurrently."""
    usages = await gather([spawn(_usage(log_dir, jobs)) for log_dir in log_manager.dirs])
    # Collected after the queries, because logs may be created and deleted meanwhile.
    logs: dict[str, list[Log]] = {log_dir.path: [] for log_dir in log_manager.dirs}
    for log in log_manager.logs.values():
        logs[log.log_dir].append(log)
    return [
        usage if usage.error else replace(usage, logs=logs[log_dir.path])
        for log_dir, usage in zip(log_manager.dirs, usages, strict=True)
    ]


async def _usage(log_dir: LogDir, jobs: Jobs) -> LogDirUsage:
    """Return the usage without `logs`, which may change until all directories are queried."""
    path = posixpath.abspath(log_dir.path)
    if log_dir.offline:
        return LogDirUsage(path=path, error=KafkaStorageError(f"{path} is offline"))
    try:
        # On a separate lane, so that the query does not wait for a long deletion.
        space = await jobs.submit(f"space:{log_dir.path}", bind(log_dir.files.space, log_dir.path))
    except OSError as error:
        return LogDirUsage(path=path, error=KafkaStorageError(f"{path}: {error}"))
    return LogDirUsage(path=path, space=space)
