"""A disk that is slow or fails, for a real broker: bad_disk.c, compiled and preloaded.

Only some calls on the files below one directory are affected, and only while the test says so; the
kernel's own disk is healthy. These tests show how the broker reacts to errors, on any machine with
a C compiler. devices.py shows how a kernel treats a faulty device, where devices may be created.
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from tests.helpers.outside import need_program

_SOURCE = Path(__file__).with_suffix(".c")


class BadDisk:
    """Disk faults of a broker that was started with `environment`."""

    def __init__(self, directory: Path) -> None:
        compiler = need_program("cc")
        library = directory / "bad_disk.so"
        command = [compiler, "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._control = directory / "bad-disk"
        self._control.touch()
        self.environment = {"LD_PRELOAD": str(library), "PLOG_BAD_DISK": str(self._control)}

    def make_syncs_slow(self, directory: Path, ms: int) -> None:
        """Delay each sync below `directory` by `ms` from now on."""
        self._set(f"sync {ms} 0 {directory}/")

    def fail_syncs(self, directory: Path) -> None:
        """Fail each sync below `directory` with EIO from now on."""
        self._set(f"sync 0 {errno.EIO} {directory}/")

    def fail_reads(self, directory: Path) -> None:
        """Fail each sendfile() from a file below `directory` with EIO from now on."""
        self._set(f"send 0 {errno.EIO} {directory}/")

    def fail_file_reads(self, path: Path) -> None:
        """Fail each pread() from the file at `path` with EIO from now on."""
        self._set(f"read 0 {errno.EIO} {path}")

    def heal(self) -> None:
        """Remove all faults; a call that is already delayed stays delayed."""
        self._set("")

    def _set(self, line: str) -> None:
        new_file = self._control.with_suffix(".new")
        new_file.write_text(line)
        os.rename(new_file, self._control)
