"""Which form of a module runs: its source, or what Cython has compiled of it.

Some modules may be compiled (setup.py does it, decision 0011). The compiled ones lie in a folder
beside their sources, whose name tells the bytes of all of them: so they are found only as long as
they are what the sources say, and a source that was changed runs at once, interpreted. Other
versions of Python find nothing there that they could load, and take the sources as well.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.machinery import ExtensionFileLoader
from types import ModuleType
from zlib import crc32

INTERPRETED = "PLOG_INTERPRETED"
"""With this in the environment no compiled module is used, and none is built."""


def folder_name(package_folder: str, modules: Sequence[str]) -> str:
    """Where the compiled forms of `modules` belong, in their package's folder. Raises OSError."""
    check = 0
    for module in modules:
        for suffix in (".py", ".pxd"):
            with open(os.path.join(package_folder, module + suffix), "rb") as file:
                check = crc32(b"%d:%b" % (check, file.read()))
    return f"compiled_{check:08x}"


def compiled_folders(package_folder: str, modules: Sequence[str]) -> list[str]:
    """What to put in front of a package's `__path__`: the folder with the compiled forms, if any.

    Costs 0.1 ms.
    """
    if os.environ.get(INTERPRETED):
        return []
    try:
        folder = os.path.join(package_folder, folder_name(package_folder, modules))
    except OSError:  # Imported from a zip file, or without sources.
        return []
    return [folder] if os.path.isdir(folder) else []


def is_compiled(module: ModuleType) -> bool:
    """Whether it is the compiled form that was imported."""
    return isinstance(module.__loader__, ExtensionFileLoader)
