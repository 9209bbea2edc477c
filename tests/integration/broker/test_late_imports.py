"""A broker imports nothing after it has reported that it is ready.

An upgrade replaces the files of a running broker before it restarts it. A module imported in
between would come from the new version and meet the code of the old one.
"""

from __future__ import annotations

import json
import signal
import socket
import ssl
import struct
import sysconfig
import urllib.error
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import plog
from plog.errors import PlogError
from tests.fuzz.targets.dispatch import TARGET
from tests.helpers.admin_calls import ADMIN_CALLS
from tests.helpers.certificates import Authority
from tests.helpers.hostile import HostileConnection
from tests.helpers.supervised_broker import TIMEOUT_S, SupervisedBroker

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

NOTE_IMPORTS = """
import json, os, sys
from plogd.__main__ import main
from plogd.sdnotify import ServiceNotifier

late = []
ready = ServiceNotifier.ready

def note(event, arguments):
    if event == "import":
        late.append(arguments[0])

def ready_and_note(self, status):
    ServiceNotifier.ready = ready
    sys.addaudithook(note)
    ready(self, status)

ServiceNotifier.ready = ready_and_note
code = main()
files = {name: getattr(sys.modules.get(name), "__file__", None) for name in [*late]}
with open(os.environ["LATE_IMPORTS"], "w") as output:
    json.dump(files, output)
sys.exit(code)
"""
"""A broker that writes the modules imported after READY, with their files, to $LATE_IMPORTS."""


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def start_and_note(
    folder: Path, settings: dict[str, str], config_file: Path | None = None
) -> SupervisedBroker:
    """Start a broker that writes what it imports after READY to a file in `folder`."""
    return SupervisedBroker(
        folder,
        settings,
        config_file=config_file,
        program=NOTE_IMPORTS,
        LATE_IMPORTS=str(folder / "imports.json"),
    )


def late_modules(folder: Path) -> list[str]:
    """Return plog's modules, and other installed ones, that the broker imported after READY."""
    standard = Path(sysconfig.get_path("stdlib"))
    late = []
    for name, file in json.loads((folder / "imports.json").read_text()).items():
        path = None if file is None else Path(file)
        is_standard = path is None or (standard in path.parents and "packages" not in file)
        if name.partition(".")[0] in ("plog", "plogd", "twisted") or not is_standard:
            late.append(f"{name} ({file})")
    return late


def call_every_admin_operation(client: dict[str, Any]) -> None:
    """Call all methods of the admin client, most of which fail."""
    with plog.Admin(config=client) as admin:
        admin.create_topic("t", 2)
        for name, arguments in ADMIN_CALLS.items():
            try:
                getattr(admin, name)(*arguments)
            except (PlogError, ValueError):
                pass  # Its error path counts as well.


def produce_and_consume(client: dict[str, Any]) -> None:
    """Use a topic and a group for each codec."""
    for codec in CODECS:
        topic = f"by-{codec}"
        with plog.Producer(config=client, compression_type=codec) as producer:
            futures = [producer.send(topic, b"%d" % number * 100) for number in range(50)]
            for future in futures:
                future.result(TIMEOUT_S)
        earliest = {"group.id": f"of-{codec}", "auto.offset.reset": "earliest"}
        with plog.Consumer(config={**client, **earliest}) as consumer:
            consumer.subscribe([topic])
            for _ in futures:
                assert consumer.poll(TIMEOUT_S) is not None
            consumer.commit()


def _send_every_request(broker: Any) -> None:
    for frame in [*TARGET.seeds(), *(path.read_bytes() for path in TARGET.corpus_files())]:
        with HostileConnection(broker) as connection:
            connection.send(struct.pack(">i", len(frame)) + frame)
            connection.drain(0.02)


def _send_wrong_protocols(*addresses: str) -> None:
    for address in addresses:
        broker: Any = SimpleNamespace(bootstrap_servers=address)
        for data in (
            b"GET / HTTP/1.1\r\n\r\n",
            b"\x16\x03\x01\x00\x01x",
            b"\0\0\0\x01x",
            b"\xff" * 9,
        ):
            with HostileConnection(broker) as connection:
                connection.send(data)
                connection.drain(0.05)


def _fail_a_handshake(address: str) -> None:
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()  # It does not trust the broker's certificate.
    with (
        socket.create_connection((host, int(port)), TIMEOUT_S) as connection,
        pytest.raises(OSError, match="certificate"),
    ):
        context.wrap_socket(connection, server_hostname="localhost")


def _read_every_page(port: int) -> None:
    for page in ("", "metrics", "health", "ready", "missing"):
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{port}/{page}", timeout=TIMEOUT_S
            ) as got:
                got.read()
        except urllib.error.HTTPError:
            pass  # The page "missing".


def _reload(broker: SupervisedBroker, file: Path, text: str, expected: str) -> None:
    file.write_text(text)
    broker.receive_all()
    broker.process.send_signal(signal.SIGHUP)
    broker.wait_for("READY", "1")
    assert expected in broker.log_text()


def test_nothing_is_imported_by_requests_reloads_pages_errors_or_the_stop(tmp_path: Path) -> None:
    authority, http_port = Authority(), _free_port()
    ca_file = authority.truststore(tmp_path / "ca.pem")
    keystore = authority.server().keystore(tmp_path / "broker.pem")
    conf_d = tmp_path / "conf.d"
    conf_d.mkdir()
    (tmp_path / "server.properties").touch()
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
        "ssl.keystore.location": str(keystore),
        "log.dirs": str(tmp_path / "data"),
        "plog.http.port": str(http_port),
        "offsets.topic.num.partitions": "2",
        "plog.status.interval.ms": "1000",
    }
    reloaded = conf_d / "reloaded.properties"
    with start_and_note(tmp_path, settings, tmp_path / "server.properties") as broker:
        plain, tls = broker.addresses()
        client = {"bootstrap.servers": plain}
        call_every_admin_operation(client)
        produce_and_consume(client)
        trust = {"security.protocol": "SSL", "ssl.truststore.location": str(ca_file)}
        produce_and_consume({"bootstrap.servers": tls, **trust})
        _send_every_request(SimpleNamespace(bootstrap_servers=plain))
        _send_wrong_protocols(plain, tls, f"127.0.0.1:{http_port}")
        _fail_a_handshake(tls)
        _read_every_page(http_port)
        _reload(broker, reloaded, "message.max.bytes=2000000\n", "changed message.max.bytes")
        _reload(broker, reloaded, "num.partitions=no\n", "cannot reload the settings")
        keystore.write_bytes(b"damaged")
        _reload(broker, reloaded, "", "cannot reload the certificates")
        broker.stop()
    assert late_modules(tmp_path) == []


def test_nothing_is_imported_when_the_last_log_directory_fails(tmp_path: Path) -> None:
    """Its error path ends in the stop of the broker."""
    data = tmp_path / "data"
    settings = {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(data)}
    with start_and_note(tmp_path, {**settings, "plog.http.port": "0"}) as broker:
        with plog.Admin(bootstrap_servers=broker.address()) as admin:
            data.rename(tmp_path / "gone")
            data.touch()
            with pytest.raises(PlogError):
                admin.create_topic("t")
        assert broker.exit_code() == 1
    assert late_modules(tmp_path) == []
