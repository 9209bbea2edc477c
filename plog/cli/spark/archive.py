"""The archive of ``plog spark pack``: a tar.gz file with the same bytes for the same contents.

Executors of Spark unpack it. Its first member, `INFO_NAME`, says what it was made for, so that
``plog spark`` recognizes an archive of another version before a job starts.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from plog.error_base import PlogError

INFO_NAME: Final = "plog-archive.json"
SUFFIXES: Final = (".tar.gz", ".tgz")
"""Spark recognizes archives by these."""
# The modes of installed files depend on the umask of the user who ran pip.
_MODE: Final = 0o644


class ArchiveError(PlogError):
    """An archive cannot be used for a job; the message contains a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveInfo:
    """What an archive was made for: plog's version, and Python's, such as ``3.11``."""

    plog: str
    python: str


def write_archive(path: Path, files: Mapping[str, Path], info: ArchiveInfo) -> None:
    """Write `files` by their names in the archive. Raises OSError.

    The archive appears under its name only when it is complete.
    """
    partial = path.with_name(f".{path.name}.partial")
    try:
        with (
            open(partial, "wb") as raw,
            # Without a name and a time, which would differ each time. Level 6 takes twice as long
            # for four percent.
            gzip.GzipFile("", "wb", 4, raw, mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
        ):
            # It comes first, so that `read_info` decompresses only the start of the archive.
            _add(archive, INFO_NAME, json.dumps(asdict(info), sort_keys=True).encode() + b"\n")
            # In this order, the same packages always result in the same bytes.
            for name, file in sorted(files.items()):
                _add(archive, name, file.read_bytes())
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    # A new entry has no owner and no time.
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), _MODE
    archive.addfile(entry, io.BytesIO(content))


def read_info(path: Path) -> ArchiveInfo:
    """Return what an archive was made for. Raises ArchiveError, or OSError if it cannot be read."""
    try:
        with tarfile.open(path, "r:gz") as archive:
            first = archive.next()
            content = archive.extractfile(first) if first and first.name == INFO_NAME else None
            if content is not None:
                found = json.load(content)
                return ArchiveInfo(plog=str(found["plog"]), python=str(found["python"]))
    except (tarfile.TarError, EOFError, gzip.BadGzipFile, ValueError, KeyError, TypeError):
        # The archive may be that of another tool, such as venv-pack.
        pass
    raise ArchiveError(
        f"cannot use {path} as the environment of executors: plog spark pack has not made it; run"
        f" plog spark pack {path}, or use another name than environment"
    )


def check_info(path: Path, found: ArchiveInfo, expected: ArchiveInfo) -> None:
    """Check that an archive fits the driver. Raises ArchiveError."""
    for name, theirs, ours in (
        ("plog", found.plog, expected.plog),
        ("Python", found.python, expected.python),
    ):
        if theirs != ours:
            raise ArchiveError(
                f"cannot use {path}: it was packed for {name} {theirs}, but this is {name} {ours};"
                f" run plog spark pack {path} again"
            )
