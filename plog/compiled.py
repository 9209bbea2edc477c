"""Select modules compiled by Cython if they exist and match their sources.

setup.py compiles some modules (decision 0011) into a folder next to their sources. The folder name
contains a checksum of the sources. After a change to a source, Python therefore does not find the
compiled modules and runs the sources instead. Other Python versions also run the sources, because
they cannot load the compiled modules.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from zlib import crc32

INTERPRETED = "PLOG_INTERPRETED"
"""If this environment variable is set, no compiled module is used or built."""


def folder_name(package_folder: str, modules: Sequence[str]) -> str:
    """Return the name of the folder for the compiled `modules` of a package. Raises OSError."""
    check = 0
    for module in modules:
        # The .pxd file declares the C types, so it also affects the compiled module.
        for suffix in (".py", ".pxd"):
            with open(os.path.join(package_folder, module + suffix), "rb") as file:
                # The checksum of the earlier files is part of the input. A running checksum would
                # not change if text moved from the end of one file to the start of the next.
                check = crc32(b"%d:%b" % (check, file.read()))
    return f"compiled_{check:08x}"


def compiled_folders(package_folder: str, modules: Sequence[str]) -> list[str]:
    """Return a list to prepend to a package's `__path__`: the folder of compiled modules, or empty.

    The call takes 0.1 ms.
    """
    if os.environ.get(INTERPRETED):
        return []
    try:
        folder = os.path.join(package_folder, folder_name(package_folder, modules))
    except OSError:  # The package is in a zip file or has no sources.
        return []
    return [folder] if os.path.isdir(folder) else []


def is_compiled(module: ModuleType) -> bool:
    """Return whether the compiled form of a module was imported."""
    # Not by the file's suffix, which depends on the platform and on the version of Python.
    return isinstance(module.__loader__, ExtensionFileLoader)
