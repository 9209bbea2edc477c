"""The command lines of Kafka's documentation work with `plog TOOL` instead of `kafka-TOOL.sh`.

kafka_doc_lines.txt contains the lines and describes its format. The test replaces only hosts, ports
and broker ids. All pages use one broker; the tools run in this process.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

import pytest

from plog.records.builder import build_batch
from plog.records.codec import Record
from plog.records.control import ControlType, encode_control_key
from plogd.testing.broker_process import BrokerProcess
from plogd.testing.plugin import BrokerFactory
from tests.helpers.certificates import Authority
from tests.helpers.log.metadata_logs import RECORDS, write_metadata_log
from tests.helpers.outside_broker import outside_broker
from tests.helpers.plog_here import plog_here
from tests.helpers.programs.kafka_tools import ToolOutput

_TABLE = Path(__file__).with_name("kafka_doc_lines.txt")
_SCRIPT = re.compile(r"(?:\./)?(?:bin/)?(?:kafka-)?([\w-]+)\.sh ?")
_ASSIGNMENT = re.compile(r'(\w+)="\$\((.*)\)"')
_SUBSTITUTION = re.compile(r"\$\((.*?)\)")
_METADATA = "metadata_log_dir/__cluster_metadata-0"


@dataclass(slots=True)
class Line:
    """A command line with its input and expected outcome."""

    text: str
    stdin: str = ""
    extra_words: str = ""
    code: int = 0
    pattern: str = ""
    is_preparation: bool = False


@dataclass(slots=True)
class Page:
    """The lines of a page, in order."""

    name: str
    lines: list[Line] = field(default_factory=list)


def _pages() -> Iterator[Page]:
    page = None
    for text in _TABLE.read_text().splitlines():
        if not text.strip() or text.startswith("#"):
            continue
        if text.startswith("= "):
            if page is not None:
                yield page
            page = Page(text[2:])
            continue
        assert page is not None
        if text.startswith("+ "):
            words, _, stdin = text[2:].partition(" < ")
            page.lines.append(Line(words, stdin=_unescaped(stdin), is_preparation=True))
        elif not text.startswith(" "):
            page.lines.append(Line(text))
        else:
            _add(page.lines[-1], *text.strip().partition(" ")[::2])
    assert page is not None
    yield page


def _add(line: Line, mark: str, text: str) -> None:
    """Apply one of the indented lines below a command."""
    match mark:
        case "<":
            line.stdin = _unescaped(text)
        case "&":
            line.extra_words = text
        case _:
            line.code, line.pattern = int(mark), text


def _unescaped(text: str) -> str:
    return text.encode().decode("unicode_escape")


PAGES = list(_pages())


@dataclass(slots=True)
class Site:
    """A broker, and the variables that lines set for later ones."""

    broker: BrokerProcess
    variables: dict[str, str]

    def run(self, line: Line) -> ToolOutput:
        """Run a command line and store the variable that it sets, if any."""
        text = line.text
        assignment = _ASSIGNMENT.fullmatch(text)
        if assignment is not None:
            done = self._run(assignment[2], "")
            self.variables[assignment[1]] = done.stdout.strip()
            return done
        text = _SUBSTITUTION.sub(lambda match: self._run(match[1], "").stdout.strip(), text)
        text = Template(text).safe_substitute(self.variables)
        return self._run(
            f"{text} {line.extra_words}", line.stdin, is_preparation=line.is_preparation
        )

    def _run(self, text: str, stdin: str, *, is_preparation: bool = False) -> ToolOutput:
        plain, encrypted = self.broker.addresses
        if is_preparation:
            text += f" --bootstrap-server {plain}"
        else:
            text = _SCRIPT.sub(r"\1 ", text, count=1)
        for name in ("localhost:9092", "broker_host:port"):
            text = text.replace(name, plain)
        text = text.replace("localhost:9093", encrypted if "client-ssl" in text else plain)
        text = text.replace("--entity-name 1", "--entity-name 0").replace("--id 1", "--id 0")
        tool, *words = shlex.split(text.replace("<CLUSTER_ID>", "MkU3OEVBNTcwNTJENDM2Qg"))
        return plog_here(tool, words, stdin=stdin.encode("latin-1"))


@pytest.fixture(scope="module")
def broker(
    plog_broker_factory: BrokerFactory,
    authority: Authority,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[BrokerProcess]:
    """The broker of all pages: its id is 0, and it has a plain and a TLS listener."""
    if outside_broker() is not None:
        pytest.skip("starts a broker of its own")
    keystore = authority.server().keystore(tmp_path_factory.mktemp("tls") / "broker.pem")
    broker = plog_broker_factory(
        {
            "node.id": "0",
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0",
            "ssl.keystore.location": str(keystore),
            "offsets.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
    )
    yield broker
    broker.stop()


@pytest.fixture
def site(
    broker: BrokerProcess,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Site:
    """The broker, with the files that the pages use in the current directory."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(
        (
            "config/server.properties",
            "config/controller.properties",
            "config/kraft/server.properties",
            "config/kraft/reconfig-server.properties",
            "server_properties",
        )
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"node.id={number}\nlog.dirs={tmp_path / f'logs-{number}'}\n")
    ca_file = authority.truststore(tmp_path / "ca.pem")
    (tmp_path / "client-ssl.properties").write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={ca_file}\n"
    )
    (tmp_path / "client.properties").write_text("client.id=mine\n")
    (tmp_path / _METADATA).parent.mkdir()
    log = write_metadata_log(tmp_path / _METADATA)
    for end in (100, 7228):
        checkpoint = log.with_name(f"{end:020d}-0000000001.checkpoint")
        checkpoint.write_bytes(log.read_bytes() + _snapshot_end())
    return Site(broker, {"KAFKA_CLUSTER_ID": "MkU3OEVBNTcwNTJENDM2Qg"})


def _snapshot_end() -> bytes:
    record = Record(
        timestamp=1, key=encode_control_key(ControlType.SNAPSHOT_FOOTER), value=bytes(3)
    )
    return build_batch([record], base_offset=len(RECORDS), is_control=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_the_page_print_the_documented_output(site: Site, page: Page) -> None:
    for line in page.lines:
        done = site.run(line)
        details = f"{line.text}\ncode {done.code}, stdout:\n{done.stdout}stderr:\n{done.stderr}"
        assert done.code == line.code, details
        if done.code:
            assert len(done.stderr.splitlines()) == 1, details
        lines = done.text.splitlines()
        if line.pattern:
            assert any(re.fullmatch(line.pattern, each) for each in lines), details
