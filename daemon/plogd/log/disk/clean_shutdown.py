"""The clean shutdown file of a log directory: if it exists, the logs do not need recovery.

The broker writes the file as the last step of a clean stop, and removes it as the first step of
startup. If the file is missing, startup recovers every log in the directory (recovery/).

Source: Kafka 3.9 CleanShutdownFileHandler.
"""

from __future__ import annotations

import json
import posixpath

from plogd.log import file_names
from plogd.log.disk.checkpoint_files import write_atomic
from plogd.ports import Files

_VERSION = 0


def write_clean_mark(files: Files, log_dir: str, broker_epoch: int = -1) -> None:
    """Durably mark the logs in `log_dir` as cleanly shut down. Raises OSError."""
    # Kafka's content; plog itself only checks whether the file exists.
    mark = json.dumps({"version": _VERSION, "brokerEpoch": broker_epoch}, separators=(",", ":"))
    write_atomic(files, posixpath.join(log_dir, file_names.CLEAN_SHUTDOWN_FILE), mark.encode())


def clean_mark_ms(files: Files, log_dir: str) -> int | None:
    """Return the wall-clock time at which the file was written; None without the file."""
    path = posixpath.join(log_dir, file_names.CLEAN_SHUTDOWN_FILE)
    return files.modified_ms(path) if files.exists(path) else None


def take_clean_mark(files: Files, log_dir: str) -> bool:
    """Durably remove the clean shutdown file; return whether it existed. Raises OSError."""
    path = posixpath.join(log_dir, file_names.CLEAN_SHUTDOWN_FILE)
    if not files.exists(path):
        return False
    # Otherwise, a crash during startup would be mistaken for a clean stop (KAFKA-10471).
    files.unlink(path)
    files.sync_dir(log_dir)  # Otherwise, a crash could bring the file back.
    return True
