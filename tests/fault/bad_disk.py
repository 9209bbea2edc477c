"""A disk that is slow or fails, for a real broker: bad_disk.c, compiled and preloaded.

Only some calls on the files below one directory are affected, from one moment to another; the
kernel below is well. So it shows what the broker does with what it is told, on any machine that has
a C compiler. What a kernel does with a device in trouble is shown where a device may be made
(devices.py).
"""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from tests.helpers.outside import need_program

_SOURCE = Path(__file__).with_suffix(".c")


class BadDisk:
    """The trouble there is; `environment` is what the broker has to be started with."""

    def __init__(self, directory: Path) -> None:
        compiler = need_program("cc")
        library = directory / "bad_disk.so"
        command = [compiler, "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
        subprocess.run(command, check=True)
        self._control = directory / "bad-disk"
        self._control.touch()
        self.environment = {"LD_PRELOAD": str(library), "PLOG_BAD_DISK": str(self._control)}

    def make_syncs_slow(self, directory: Path, ms: int) -> None:
        """From now on each sync below `directory` takes so long."""
        self._set(f"sync {ms} 0 {directory}/")

    def fail_syncs(self, directory: Path) -> None:
        """From now on each sync below `directory` fails with EIO."""
        self._set(f"sync 0 {errno.EIO} {directory}/")

    def fail_reads(self, directory: Path) -> None:
        """From now on no record below `directory` can be sent."""
        self._set(f"send 0 {errno.EIO} {directory}/")

    def heal(self) -> None:
        """All is well from now on; what is slow at this moment stays so until it ends."""
        self._set("")

    def _set(self, line: str) -> None:
        aside = self._control.with_suffix(".new")
        aside.write_text(line)
        os.rename(aside, self._control)
