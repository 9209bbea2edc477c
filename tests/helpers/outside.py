"""Programs that are not Python packages: found, or the reason why a test cannot run.

./test installs them where it may. Where it could not, their tests are skipped with the reason;
under ``CI=true`` they fail instead: a green run always means that every client was there.
"""

from __future__ import annotations

import os
import shutil

import pytest


def need_program(name: str) -> str:
    """The path of a program this test needs."""
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not installed")
    return path


def missing(reason: str) -> None:
    """End this test: it needs something that is not on this machine."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and under CI=true everything has to be there", pytrace=False)
    pytest.skip(reason)
