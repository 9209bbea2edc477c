"""What lies in each log directory, and how much room its file system has: behind DescribeLogDirs.

Asking a file system may wait, so it is a job, on a lane of its own: it must not stand behind a
long deletion. The sizes are those the logs know of themselves. Source: Kafka 4.3
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
    """A log directory; without space and logs if `error` says why it cannot be used."""

    path: str
    """From the root on, however ``log.dirs`` has it."""
    error: KafkaStorageError | None = None
    space: DiskSpace | None = None
    logs: Sequence[Log] = ()


async def usage_of(log_manager: LogManager, jobs: Jobs) -> list[LogDirUsage]:
    """The usage of each log directory, in the order of ``log.dirs``; all are asked at once."""
    usages = await gather([spawn(_usage(log_dir, jobs)) for log_dir in log_manager.dirs])
    logs: dict[str, list[Log]] = {log_dir.path: [] for log_dir in log_manager.dirs}
    for log in log_manager.logs.values():
        logs[log.log_dir].append(log)
    return [
        usage if usage.error else replace(usage, logs=logs[log_dir.path])
        for log_dir, usage in zip(log_manager.dirs, usages, strict=True)
    ]


async def _usage(log_dir: LogDir, jobs: Jobs) -> LogDirUsage:
    """Without the logs: there may be others by the time all directories have answered."""
    path = posixpath.abspath(log_dir.path)
    if log_dir.offline:
        return LogDirUsage(path=path, error=KafkaStorageError(f"{path} is offline"))
    try:
        space = await jobs.submit(f"space:{log_dir.path}", bind(log_dir.files.space, log_dir.path))
    except OSError as error:
        return LogDirUsage(path=path, error=KafkaStorageError(f"{path}: {error}"))
    return LogDirUsage(path=path, space=space)
