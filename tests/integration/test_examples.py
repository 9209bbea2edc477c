"""Every example of the README and the docs, run as it stands, against a broker of its own.

An example is a fenced block of Python, or one of shell that has a broker's address in each of its
lines; those of `plog --help` have a test of their own. It has to end by itself. What it names
localhost:9092, or 127.0.0.1:9092, is the test's broker. Those of a file run one after the other on
the same broker, as a reader would try them. Those with a transactional_id run on Apache Kafka.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import plog
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.integration.client_servers import Server

ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SHELL_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_ADDRESS = re.compile(r"(localhost|127\.0\.0\.1)([:\",\s]+)9092")
_TIMEOUT_S = 60


def examples() -> list[tuple[str, int, str]]:
    """File, number in it, and text of each."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (str(path.relative_to(ROOT)), number, text)
        for path in files
        for number, text in enumerate(_BLOCK.findall(path.read_text("utf-8")), 1)
    ]


@pytest.fixture(scope="module")
def broker(plog_broker_factory: BrokerFactory) -> BrokerProcess:
    return plog_broker_factory()


@pytest.fixture(scope="module")
def kafka(kafka_servers: dict[str, Server]) -> str:
    """The address of a broker with transactions, and with the topics of its examples."""
    settings = kafka_servers["kafka"].settings
    with plog.Admin(**settings) as admin:
        for topic in ("orders", "invoices"):
            admin.create_topic(topic)
    address: str = settings["bootstrap_servers"]
    return address


@pytest.mark.parametrize(("file", "number", "text"), examples())
def test_an_example_works_as_it_stands(
    file: str, number: int, text: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    if "transactional_id" in text:
        address: str = request.getfixturevalue("kafka")
    else:
        address = request.getfixturevalue("broker").bootstrap_servers
    host, port = address.split(":")
    program = _ADDRESS.sub(rf"{host}\g<2>{port}", text)
    is_test = "def test_" in program
    path = tmp_path / ("test_example.py" if is_test else "example.py")
    path.write_text(program, "utf-8")
    command = [sys.executable, *(["-m", "pytest", "-q", "-p", "no:cacheprovider"] * is_test), path]
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'daemon'}"}
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    output = (done.stdout + done.stderr).decode()
    assert done.returncode == 0, f"{file}, example {number}:\n{program}\n{output}"


def command_lines() -> list[tuple[str, str]]:
    """File and text of each."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (str(path.relative_to(ROOT)), text)
        for path in files
        if path.name != "cli.md"  # Those of `plog --help`.
        for text in _SHELL_BLOCK.findall(path.read_text("utf-8"))
        if all(" plog " in f" {line}" and _ADDRESS.search(line) for line in text.splitlines())
    ]


@pytest.mark.parametrize(("file", "text"), command_lines())
def test_a_command_line_works_as_it_stands(file: str, text: str, broker: BrokerProcess) -> None:
    program = _ADDRESS.sub(broker.bootstrap_servers, text)
    plog = f'plog() {{ "{sys.executable}" -m plog.cli "$@"; }}\n'
    done = subprocess.run(
        ["sh", "-e", "-c", plog + program], capture_output=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{file}:\n{program}\n{(done.stdout + done.stderr).decode()}"


def test_there_are_examples_of_each_face() -> None:
    assert command_lines()
    texts = "\n".join(text for file, _, text in examples() if file == "docs/clients.md")
    for module in ("from plog import", "from plog.aio import", "from plog.twisted import"):
        assert module in texts
