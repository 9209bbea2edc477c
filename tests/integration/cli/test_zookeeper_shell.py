"""`plog zookeeper-shell` against Apache ZooKeeper, compared with ZooKeeper's own shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from plog.cli.parser import examples_of, tool_parser
from plog.cli.zookeeper.shell import configure
from tests.helpers.client.plog_command import RunningPlog
from tests.helpers.zookeeper_server import SUPERUSER, ZooKeeperServer, make_certificates

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
config -cws
config -x
bogus
create /w
addWatch /w
addWatch -m PERSISTENT /w
addWatch -m ever /w
addWatch /w /v
addWatch
stat -w /w/y
create /w/x
ls /w
create /w/y
ls /w
set /w/y 1
ls /w
ls -w /w
get -w /w
set /w 1
ls /w
delete /w/x
ls /w
removewatches /w
set /w 2
removewatches /w
removewatches w
create /v
ls -w /v
get -w /v
removewatches -d /v
removewatches /v -d
removewatches -c -l /v
ls -w /v
get -w /v
delete /v
ls /
get -sw -v1 /a
setquota -n 4 /w
listquota /w
delquota /w
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


# Runs below the root without a chroot, because the servers count usage there.
_ADMINISTRATION = """\
create {root}
create {root}/a hello
setquota {root}
setquota -n
setquota -n 3
setquota -n 3 -b 5 {root}
setquota -n x {root}
setquota -n 0 {root}
setquota -N -1 {root}
setquota -B -1 {root}
setquota -n 5 /zookeeper/quota/x
setquota -n 5 {root}/nope
setquota -n 5 nope
setquota -n 5 /
listquota {root}
setquota -n1 {root}
listquota {root}
setquota -N 3 {root}
setquota -b 100 {root}
setquota -B 7 {root}
setquota -B 3 {root}
setquota -n 5 {root}/a
create {root}/a/b
setquota -n 5 {root}/a/b
create {root}/c
set {root}/a 12345678
listquota {root}
listquota {root}/nope
listquota /
listquota
delquota -n {root}
delquota -n -b {root}
listquota {root}
delquota {root}
delquota {root}
delquota nope
delquota
setquota -n 5 {root}/a/b
setquota -n 5 {root}
delquota {root}/a/b
ls -R /zookeeper/quota
config -s
config -c
reconfig
reconfig -s -v 1
reconfig -add
reconfig -v g -remove 2
reconfig -remove 2 -members x
reconfig -file x -members x
reconfig -add {second}
addauth digest {superuser}
config -w
reconfig -s -add {second}
config
reconfig -v 1 -remove 2
reconfig -remove 2
reconfig -remove 2
reconfig -add nonsense
reconfig -members {first}
reconfig -file {file}
reconfig -remove 1
config
"""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of ca.pem, server.pem, and client.pem, whose key has the password `secret`."""
    return make_certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(
    tmp_path_factory: pytest.TempPathFactory, certificates: Path
) -> Iterator[ZooKeeperServer]:
    """A ZooKeeper server shared by the tests of this file."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper"), certificates) as server:
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


def test_command_in_arguments_sets_the_exit_code(zookeeper: ZooKeeperServer) -> None:
    path = "/partition"
    created = _plog(zookeeper.address, "create", path, _STATE)
    assert (created.returncode, created.stderr) == (0, f"Created {path}\n")
    read = _plog(zookeeper.address, "get", path)
    assert read.stdout == f"Connecting to {zookeeper.address}\n{_CONNECTED}{_STATE}\n"
    absent = _plog(zookeeper.address, "-timeout", "5000", "get", "/nope")
    assert (absent.returncode, absent.stderr) == (1, "Node does not exist: /nope\n")
    assert _plog(zookeeper.address, "bogus").returncode == 127


def test_help_examples_work(zookeeper: ZooKeeperServer) -> None:
    paths = ["/brokers/topics/orders/partitions/0/state", "/brokers/ids", "/controller"]
    parents = {str(each) for path in paths for each in Path(path).parents} - {"/"}
    lines = "".join(f"create {path}\n" for path in sorted({*parents, *paths}))
    assert _plog(zookeeper.address, lines=lines).stderr.count("Created ") == 8
    examples = examples_of(tool_parser("zookeeper-shell", configure))
    for example in examples:
        words = example.replace("localhost:2181", zookeeper.address).split()[2:]
        done = _plog(*words)
        assert (done.returncode, done.stderr) == (0, ""), example
    assert len(examples) == 5


def test_commands_of_kafkas_documentation_work(zookeeper: ZooKeeperServer) -> None:
    """The migration from ZooKeeper uses one command and one session."""
    znodes = ["/cluster", "/cluster/id cluster-of-mine", "/controller", "/migration seen"]
    lines = "".join(f"create {each}\n" for each in znodes)
    _plog(zookeeper.address, lines=lines)
    output = _plog(zookeeper.address, "get", "/cluster/id")
    assert (output.returncode, output.stdout.splitlines()[-1]) == (0, "cluster-of-mine")
    output = _plog(
        zookeeper.address, lines="rmr /controller\nget /migration\nrmr /migration\nls /\n"
    )
    assert output.returncode == 0
    assert "seen" in output.stdout.splitlines()
    remaining = output.stdout.splitlines()[-1]
    assert "cluster" in remaining
    assert "controller" not in remaining
    assert "migration" not in remaining


def test_session_prints_the_same_as_zookeepers_shell(zookeeper: ZooKeeperServer) -> None:
    for chroot in ("/ours", "/theirs"):
        assert _plog(zookeeper.address, "create", chroot).returncode == 0
    ours = _plog(f"{zookeeper.address}/ours", lines=_LINES)
    theirs = zookeeper.shell("/theirs", lines=_LINES)
    assert ours.returncode == theirs.returncode == 0
    assert _comparable(ours.stdout) == _comparable(theirs.stdout)
    assert _comparable(ours.stderr) == _comparable(theirs.stderr)


def test_quota_and_reconfig_commands_print_the_same_as_zookeepers_shell(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    file = tmp_path / "members.cfg"
    file.write_text(f"server.1={zookeeper.member}\n")
    values = {
        "superuser": SUPERUSER,
        "first": f"server.1={zookeeper.member}",
        "second": "server.2=127.0.0.1:2:3:observer;127.0.0.1:4",
        "file": file,
    }
    ours = _plog(zookeeper.address, lines=_ADMINISTRATION.format(root="/ours-q", **values))
    theirs = zookeeper.shell("", lines=_ADMINISTRATION.format(root="/theirs-q", **values))
    assert ours.returncode == theirs.returncode == 0
    assert _comparable(ours.stdout) == _comparable(theirs.stdout)
    assert _comparable(ours.stderr) == _comparable(theirs.stderr)


def _comparable(text: str) -> tuple[list[str], list[str]]:
    """Replace intended and random differences; return other lines and events separately.

    Another thread prints the events, so they may appear between any other lines.
    """
    replacements = [
        (r"/(theirs|ours)\b", ""),
        (r"= 0x[0-9a-f]+", "= 0xN"),
        (r"(?<=time = )\w{3} \w{3} \d\d [\d:]{8} UTC \d{4}$", "T"),
        (r"(?<=^version=)[0-9a-f]+", "V"),
        (r"^[0-9a-f]+(?= 127\.0\.0\.1:)", "V"),
        # In the usage: the program's name, trailing blanks, and plog's own commands and options.
        (r"^(ZooKeeper -server|plog zookeeper-shell) .*\n", ""),
        (r"^\t(exit|help)\n", ""),
        (r"(?<=^\t)([gs]et .*)\[-b\] (\[-x\] )?", r"\1"),
        (r"(?<=^\tgetEphemerals )\[path\]", "path"),
        (r"(?<=^\t)(\w+) $", r"\1"),
        (r"^JLine support is disabled\n", ""),
        # The name of a commons-cli exception.
        (r"^org\.apache\.\S+Exception: ", ""),
        # plog prints the path.
        (r"Acl is not valid : \S+", "Acl is not valid : null"),
    ]
    for pattern, replacement in replacements:
        text = re.sub(pattern, replacement, text, flags=re.MULTILINE)
    lines = [line for line in text.splitlines() if line not in ("", "WATCHER::")]
    events = [line for line in lines if line.startswith("WatchedEvent")]
    return [line for line in lines if line not in events], events


def test_tls_connection_works_and_its_failure_is_explained(
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


def test_unreachable_server_is_reported_in_one_line(tmp_path: Path) -> None:
    done = _plog("127.0.0.1:1", "ls", "/")
    assert done.returncode == 1
    assert done.stderr == ("plog: cannot connect to ZooKeeper at 127.0.0.1:1: Connection refused\n")


def test_watches_are_restored_when_the_server_restarts(tmp_path: Path, certificates: Path) -> None:
    with ZooKeeperServer(tmp_path, certificates) as server:
        command = [sys.executable, "-m", "plog.cli", "zookeeper-shell", server.address]
        with RunningPlog(command) as shell:
            shell.type("addWatch /\nstat -w /once\nsync /\n")
            shell.wait_until(lambda lines: "Sync is OK" in lines, "answer")
            server.stop()
            shell.wait_until(lambda lines: "state:Disconnected" in lines[-1], "event")
            server.start()
            shell.wait_until(lambda lines: "state:SyncConnected" in lines[-1], "event")
            assert _plog(server.address, "create", "/once").returncode == 0
            shell.wait_until(lambda lines: lines[-1].endswith("path:/once"), "event")
            shell.type("removewatches /\nquit\n")
            assert shell.wait() == 0
    assert [line.split(" ", 2)[2] for line in shell.lines if "path:/" in line] == [
        "type:NodeCreated path:/once",
        "type:PersistentWatchRemoved path:/",
    ]


def test_stopped_server_is_reported_for_each_command(tmp_path: Path, certificates: Path) -> None:
    with ZooKeeperServer(tmp_path, certificates) as server:
        command = [sys.executable, "-m", "plog.cli", "zookeeper-shell", server.address]
        with RunningPlog(command) as shell:
            shell.type("addWatch /\nls /\n")
            shell.wait_until(lambda lines: "[zookeeper]" in lines, "list")
            server.stop()
            shell.wait_until(lambda lines: "state:Disconnected" in lines[-1], "event")
            shell.type("ls /\nremovewatches -l /\nconnect\nls /\n")
            assert shell.wait() == 0
    assert shell.errors[0].startswith("KeeperErrorCode = ConnectionLoss for /")
    assert shell.errors[1].startswith("plog: cannot connect to ZooKeeper")
    event = "WatchedEvent state:Disconnected type:PersistentWatchRemoved path:/"
    assert shell.lines[-5:] == ["", "WATCHER::", "", event, "Not connected"]
