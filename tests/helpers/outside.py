"""External programs that tests need: find them, or report why a test cannot run.

./test installs them where it has permission. If one is missing, its tests are skipped with the
reason; under ``CI=true`` they fail instead, so that a green run always includes every client.
"""

from __future__ import annotations

import os
import shutil

import pytest


def need_program(name: str) -> str:
    """Return the path of a program that the test needs."""
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not installed")
    return path


def missing(reason: str) -> None:
    """End this test: it needs something that is not installed."""
    if os.environ.get("CI") == "true":
        pytest.fail(f"{reason}, and CI=true requires everything", pytrace=False)
    pytest.skip(reason)
