"""Every example in the README and the docs, run unchanged against a broker.

An example is a fenced block of Python, or a fenced block of shell commands that each contain a
broker's address; test_cli_examples.py tests those of `plog --help`. It must end by itself. The
addresses localhost:9092 and 127.0.0.1:9092 are replaced by the broker's. The examples of a file run
sequentially on the same broker, as a reader would try them. Examples with a transactional_id run on
Apache Kafka. tests/spark runs those of docs/spark.md.
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
    """Return the file, the number within the file and the text of each Python example."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (str(path.relative_to(ROOT)), number, text)
        for path in files
        if path.name != "spark.md"
        for number, text in enumerate(_BLOCK.findall(path.read_text("utf-8")), 1)
    ]


@pytest.fixture(scope="module")
def broker(plog_broker_factory: BrokerFactory) -> BrokerProcess:
    return plog_broker_factory()


@pytest.fixture(scope="module")
def kafka(kafka_servers: dict[str, Server]) -> str:
    """The address of a broker with transactions, on which the topics of the examples exist."""
    settings = kafka_servers["kafka"].settings
    with plog.Admin(**settings) as admin:
        for topic in ("orders", "invoices"):
            admin.create_topic(topic)
    address: str = settings["bootstrap_servers"]
    return address


@pytest.mark.parametrize(("file", "number", "text"), examples())
def test_python_example_succeeds_unchanged(
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
    """Return the file and the text of each shell example."""
    files = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    return [
        (str(path.relative_to(ROOT)), text)
        for path in files
        if path.name != "cli.md"  # Tested by test_cli_examples.py.
        for text in _SHELL_BLOCK.findall(path.read_text("utf-8"))
        if all(" plog " in f" {line}" and _ADDRESS.search(line) for line in text.splitlines())
    ]


@pytest.mark.parametrize(("file", "text"), command_lines())
def test_shell_example_succeeds_unchanged(file: str, text: str, broker: BrokerProcess) -> None:
    program = _ADDRESS.sub(broker.bootstrap_servers, text)
    plog = f'plog() {{ "{sys.executable}" -m plog.cli "$@"; }}\n'
    done = subprocess.run(
        ["sh", "-e", "-c", plog + program], capture_output=True, timeout=_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{file}:\n{program}\n{(done.stdout + done.stderr).decode()}"


def test_clients_page_has_examples_for_each_api() -> None:
    assert command_lines()
    texts = "\n".join(text for file, _, text in examples() if file == "docs/clients.md")
    for module in ("from plog import", "from plog.aio import", "from plog.twisted import"):
        assert module in texts
