"""`plog zookeeper-shell` against a real ZooKeeper, and beside ZooKeeper's own shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from plog.cli.parser import examples_of, tool_parser
from plog.cli.zookeeper_shell import configure
from tests.helpers.certificates import Authority
from tests.helpers.plog_command import RunningPlog
from tests.helpers.zookeeper_server import ZooKeeperServer

_STATE = '{"controller_epoch":1,"leader":1,"version":1,"leader_epoch":0,"isr":[1]}'
_CONNECTED = "\nWATCHER::\n\nWatchedEvent state:SyncConnected type:None path:null\n"
_LINES = """\
create /a hello
create /a x
ls /
get -s /a
get /nope
create -e /a/e 1
create -s /a/s- 1
create /nope/x 1
create /a/e/x 1
create /empty
get /empty
ls -s /a
ls -R /
ls -sw /a
stat -w /a
get -w /a
set /a world
create /a/f 1
set -s -v 0 /a x
set -v 1 /a y
set -v
delete -v 9 /a
delete /a
delete /a 1
getAcl -s /a
setAcl -s /a world:anyone:cdrwa
setAcl /a world:anyone:xycdrwa
addauth digest u:p
create /auth d auth::cdrwa
getAcl /auth
whoami
sync /
getAllChildrenNumber /a
getEphemerals
history
redo 3
redo 99
ls
ls a
get /a/
get /a//b
get /a/../b
create -c /c
create -t 1000000 /t x
create -t 0 /t2 x
create -t abc /t2
create -e -c /z
stat /c
stat /nope
get "/au th" 1
get '/auth'
deleteall /nope
create /kept
create /kept/too
setAcl /kept world:anyone:r
deleteall /kept
setAcl -R /a world:anyone:cdrwa
deleteall /a
config
printwatches off
printwatches
ls /
close
ls /
connect
ls /
quit
ls /
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, server.pem, and client.pem, whose key has the password `secret`."""
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority()
    authority.truststore(folder / "ca.pem")
    authority.server("127.0.0.1").keystore(folder / "server.pem")
    authority.client().keystore(folder / "client.pem", "secret")
    return folder


def _server(folder: Path, certificates: Path) -> ZooKeeperServer:
    return ZooKeeperServer(
        folder, keystore=certificates / "server.pem", truststore=certificates / "ca.pem"
    )


@pytest.fixture(scope="module")
def zookeeper(
    tmp_path_factory: pytest.TempPathFactory, certificates: Path
) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper for the tests of this file."""
    with _server(tmp_path_factory.mktemp("zookeeper"), certificates) as server:
        yield server


def _plog(*arguments: str | Path, lines: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "plog.cli", "zookeeper-shell", *map(str, arguments)],
        input=lines,
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TZ": "UTC"},
    )


def test_one_command_is_run_and_its_exit_code_told(zookeeper: ZooKeeperServer) -> None:
    path = "/partition"
    made = _plog(zookeeper.address, "create", path, _STATE)
    assert (made.returncode, made.stderr) == (0, f"Created {path}\n")
    read = _plog(zookeeper.address, "get", path)
    assert read.stdout == f"Connecting to {zookeeper.address}\n{_CONNECTED}{_STATE}\n"
    absent = _plog(zookeeper.address, "-timeout", "5000", "get", "/nope")
    assert (absent.returncode, absent.stderr) == (1, "Node does not exist: /nope\n")
    assert _plog(zookeeper.address, "bogus").returncode == 127


def test_the_examples_of_the_help_work(zookeeper: ZooKeeperServer) -> None:
    paths = ["/brokers/topics/orders/partitions/0/state", "/brokers/ids", "/controller"]
    parents = {str(each) for path in paths for each in Path(path).parents} - {"/"}
    lines = "".join(f"create {path}\n" for path in sorted({*parents, *paths}))
    assert _plog(zookeeper.address, lines=lines).stderr.count("Created ") == 8
    examples = examples_of(tool_parser("zookeeper-shell", configure))
    for example in examples:
        words = example.replace("localhost:2181", zookeeper.address).split()[2:]
        done = _plog(*words)
        assert (done.returncode, done.stderr) == (0, ""), example
    assert len(examples) == 4


def test_a_session_prints_what_zookeepers_own_shell_prints(zookeeper: ZooKeeperServer) -> None:
    for chroot in ("/ours", "/theirs"):
        assert _plog(zookeeper.address, "create", chroot).returncode == 0
    ours = _plog(f"{zookeeper.address}/ours", lines=_LINES)
    theirs = zookeeper.shell("/theirs", lines=_LINES)
    assert ours.returncode == theirs.returncode == 0
    assert _comparable(ours.stdout) == _comparable(theirs.stdout)
    assert _comparable(ours.stderr) == _comparable(theirs.stderr)


def _comparable(text: str) -> list[str]:
    """Lines without what differs from run to run, and without what differs on purpose."""
    replaced = [
        (r"/(theirs|ours)\b", ""),
        (r"= 0x[0-9a-f]+", "= 0xN"),
        (r"(?<=time = )\w{3} \w{3} \d\d [\d:]{8} UTC \d{4}$", "T"),
        (r"^JLine support is disabled\n", ""),
        # A commons-cli exception's name.
        (r"^org\.apache\.\S+Exception: ", ""),
        # Ours names the path.
        (r"Acl is not valid : \S+", "Acl is not valid : null"),
    ]
    for pattern, by in replaced:
        text = re.sub(pattern, by, text, flags=re.MULTILINE)
    return text.splitlines()


def test_tls_is_spoken_and_explained(
    zookeeper: ZooKeeperServer, certificates: Path, tmp_path: Path
) -> None:
    settings = {
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": certificates / "ca.pem",
        "zookeeper.ssl.keystore.location": certificates / "client.pem",
        "zookeeper.ssl.keystore.password": "secret",
    }
    file = tmp_path / "tls.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    done = _plog(zookeeper.tls_address, "ls", "/zookeeper", "-zk-tls-config-file", file)
    assert done.stdout.endswith("\n[config, quota]\n"), done.stderr
    file.write_text("zookeeper.ssl.keystore.location=\n")
    refused = _plog(zookeeper.tls_address, "-zk-tls-config-file", file, "ls", "/")
    assert refused.returncode == 1
    assert "is signed by a CA that is not trusted" in refused.stderr


def test_a_server_that_is_not_there_is_one_line_at_once(tmp_path: Path) -> None:
    begin = time.monotonic()
    done = _plog("127.0.0.1:1", "ls", "/")
    assert time.monotonic() - begin < 10
    assert done.returncode == 1
    assert done.stderr == ("plog: cannot connect to ZooKeeper at 127.0.0.1:1: Connection refused\n")


def test_a_server_that_goes_away_is_told_at_once(tmp_path: Path, certificates: Path) -> None:
    with _server(tmp_path, certificates) as server:
        command = [sys.executable, "-m", "plog.cli", "zookeeper-shell", server.address]
        with RunningPlog(command) as shell:
            shell.type("ls /\n")
            shell.wait_until(lambda lines: "[zookeeper]" in lines, "list")
            server.stop()
            shell.wait_until(lambda lines: "state:Disconnected" in lines[-1], "event")
            begin = time.monotonic()
            shell.type("ls /\nconnect\nls /\n")
            assert shell.wait() == 0
        assert time.monotonic() - begin < 10
    assert shell.errors[0].startswith("KeeperErrorCode = ConnectionLoss for /")
    assert shell.errors[1].startswith("plog: cannot connect to ZooKeeper")
    assert shell.lines[-1] == "Not connected"
