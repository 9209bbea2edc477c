"""Apache ZooKeeper's jars, which Maven downloads once, through zookeeper-jars."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path

from tests.helpers.outside import missing, need_program

_JARS = Path(__file__).with_name("zookeeper-jars")
_INSTALL_TIMEOUT_S = 600


def zookeeper_class_path() -> str:
    """Return the class path of ZooKeeper's server and shell; end the test if it is unavailable."""
    for program in ("bash", "java", "mvn"):
        need_program(program)
    return _installed()


@cache
def _installed() -> str:
    done = subprocess.run([_JARS], capture_output=True, text=True, timeout=_INSTALL_TIMEOUT_S)
    if done.returncode != 0:
        missing(f"ZooKeeper's jars could not be fetched: {done.stderr.strip()[-500:]}")
    return f"{done.stdout.split()[0]}/*"
