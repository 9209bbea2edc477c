"""`linked_home`: a home of Spark whose Python processes start in half the time.

Spark puts ``python/lib/pyspark.zip`` of its home before all other folders of its Python processes.
The archive contains no compiled code, so each process compiles pyspark again when it starts, which
takes 0.7 s: once for each streaming query, and for each kind of worker. In a home without the
archive, the processes import the installed pyspark, which is compiled already. This concerns the
processes on the driver's host: executors of a cluster have a home of their own.

Source: Spark 4.2 PythonUtils.sparkPythonPath; Python's zipimport.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_ARCHIVE: Final = Path("python/lib/pyspark.zip")


def linked_home(home: Path, environment: Mapping[str, str]) -> Path:
    """Return a folder in the user's cache with links to the contents of `home`.

    Only the archive is missing. Returns `home` if such a folder cannot be created.
    """
    try:
        return home_in(cache_folder(environment), home)
    except (OSError, RuntimeError):  # Path.home() raises RuntimeError for a user without a home.
        return home


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the user's folder for files that can be created again. Raises RuntimeError.

    >>> cache_folder({"XDG_CACHE_HOME": "/var/cache/me"})
    PosixPath('/var/cache/me/plog')
    """
    found = environment.get("XDG_CACHE_HOME")
    # Relative paths are invalid, according to the specification of XDG.
    parent = Path(found) if found and os.path.isabs(found) else Path.home() / ".cache"
    return parent / "plog"


def home_in(cache: Path, home: Path) -> Path:
    """Return the folder in `cache`, and create it unless it is complete. Raises OSError."""
    names = sorted(_linked(home))
    # Other versions of pyspark may have other contents, and other users cannot read the folder.
    key = "\0".join([str(os.getuid()), str(home), *names])
    linked = cache / f"spark-home-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    if not _is_complete(linked, names):
        cache.mkdir(parents=True, exist_ok=True)
        _create(linked, home, names)
    return linked


def _linked(home: Path) -> list[str]:
    """Return the paths in `home` that get a link: together, all except the archive."""
    around = [home, *(home / parent for parent in _ARCHIVE.parents[:-1])]
    kept = {home / _ARCHIVE, *around}
    return [
        str(path.relative_to(home))
        for folder in around
        if folder.is_dir()
        for path in folder.iterdir()
        if path not in kept
    ]


def _is_complete(linked: Path, names: list[str]) -> bool:
    # exists() follows the links, so it also finds those whose targets were uninstalled.
    return all((linked / name).exists() for name in names)


def _create(linked: Path, home: Path, names: list[str]) -> None:
    """Create the folder at once, because other jobs may be starting, too."""
    new = Path(tempfile.mkdtemp(prefix=".new-", dir=linked.parent))
    try:
        for name in names:
            link = new / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(home / name)
        try:
            new.rename(linked)
        except OSError:
            # Another job may have created the folder meanwhile, and be using it.
            if not _is_complete(linked, names):
                shutil.rmtree(linked)
                new.rename(linked)
    finally:
        shutil.rmtree(new, ignore_errors=True)
