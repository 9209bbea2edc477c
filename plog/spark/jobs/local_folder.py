"""Folders of the local file system, which jobs that rename files need."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

from plog.settings import ConfigError

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")


def local_folder(text: str, purpose: str) -> Path:
    """Return the absolute path of a folder, which may be given as a ``file:`` URL.

    Raises ConfigError for a URL of another file system; `purpose` names the folder in the error.

    >>> local_folder("file:///data/table", "table")
    PosixPath('/data/table')
    """
    if not _SCHEME.match(text):
        # The executors have other working directories than the driver.
        return Path(text).absolute()
    parts = urlsplit(text)
    # The host in a URL such as file://host/folder is another machine.
    if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
        raise ConfigError(
            [
                f"cannot use {text} as {purpose}: the job renames files, which only the local file"
                " system does atomically; use a path on a disk that driver and executors share"
            ]
        )
    return Path(unquote(parts.path))
