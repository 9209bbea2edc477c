"""The ZooKeeper of the local cluster: its jars, its settings, and the wait until it serves.

The jars are those of Debian's package libzookeeper-java if it is installed. Otherwise, Maven
downloads ZooKeeper's jars once, into a cache in the home folder, which the tests also use.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final

from examples.cluster.server import CannotStart, Server

_DEBIAN_JAR: Final = Path("/usr/share/java/zookeeper.jar")
"""Its manifest names the other jars."""
_JARS: Final = Path(__file__).parents[2] / "tests/helpers/zookeeper-jars"
_INSTALL_JAVA: Final = "install a Java runtime, for example with: apt install default-jre-headless"
_INSTALL_JARS: Final = "install them with: apt install libzookeeper-java"
_START_TIMEOUT_S: Final = 60.0
_PAUSE_S: Final = 0.05
_LOGBACK: Final = "<configuration><root level='OFF'/></configuration>"
_LOG4J: Final = "log4j.rootLogger=OFF\n"


def class_path() -> str:
    """Return the class path of ZooKeeper. Raises CannotStart."""
    if shutil.which("java") is None:
        raise CannotStart(f"cannot start ZooKeeper: Java is not installed; {_INSTALL_JAVA}")
    if _DEBIAN_JAR.exists():
        return str(_DEBIAN_JAR)
    if shutil.which("mvn") is None or shutil.which("bash") is None:
        raise CannotStart(
            f"cannot start ZooKeeper: neither its jars nor Maven are installed; {_INSTALL_JARS}"
        )
    done = subprocess.run([_JARS], capture_output=True, text=True)
    if done.returncode != 0:
        why = done.stderr.strip()[-500:]
        raise CannotStart(
            f"cannot start ZooKeeper: Maven could not download its jars: {why}; {_INSTALL_JARS}"
        )
    return f"{done.stdout.split()[0]}/*"


def start_zookeeper(folder: Path, port: int) -> Server:
    """Start a server on `port` of the loopback interface, with its data below `folder`.

    Raises CannotStart.
    """
    jars = class_path()
    (folder / "logback.xml").write_text(_LOGBACK)
    (folder / "log4j.properties").write_text(_LOG4J)
    config = folder / "zoo.cfg"
    config.write_text(
        f"tickTime=1000\ndataDir={folder / 'zookeeper'}\nclientPort={port}\n"
        "clientPortAddress=127.0.0.1\nadmin.enableServer=false\n"
    )
    command = [
        "java",
        "-Xmx128m",
        "-XX:+UseSerialGC",
        f"-Dlogback.configurationFile={folder / 'logback.xml'}",
        f"-Dlog4j.configuration=file:{folder / 'log4j.properties'}",
        "-cp",
        jars,
        "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        str(config),
    ]
    return Server("ZooKeeper", command, folder / "zookeeper.log", os.environ)


def wait_until_it_serves(server: Server, port: int) -> None:
    """Return when ZooKeeper serves. Raises CannotStart."""
    deadline_s = time.monotonic() + _START_TIMEOUT_S
    while not _serves(port):
        ended = server.end_reason()
        if ended:
            raise server.failed(f"it {ended}")
        if time.monotonic() > deadline_s:
            raise server.failed(f"it does not serve after {_START_TIMEOUT_S:g} s")
        time.sleep(_PAUSE_S)


def _serves(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as probe:
            probe.sendall(b"srvr")
            return b"Mode: " in probe.recv(4096)
    except OSError:
        return False
