"""plog's tools and Kafka's own, run on Apache Kafka: the same lines and the same exit codes.

tool_lines.txt contains the commands and describes its format. Where Kafka's tool fails with exit
code 0 or prints a wrong result, plog's tool differs; tests of plog alone cover those commands.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from tests.helpers.plog_here import plog_here
from tests.helpers.programs.kafka_tools import KafkaTools, ToolOutput
from tests.helpers.side_by_side import Pair

pytestmark = pytest.mark.long

_TABLE = Path(__file__).with_name("tool_lines.txt")
_OURS, _JAVA = "byplog", "byjava"
_CLASSES = {
    "configs": "ConfigCommand",
    "console-consumer": "ConsoleConsumer",
    "console-producer": "ConsoleProducer",
    "consumer-groups": "ConsumerGroupCommand",
    "delete-records": "DeleteRecordsCommand",
    "get-offsets": "GetOffsetShell",
    "log-dirs": "LogDirsCommand",
    "topics": "TopicCommand",
}
_DEPRECATED = re.compile(r"(Warning: |Option )--?[\w.-]+ is deprecated and will be removed .*")


def _parts() -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in _TABLE.read_text().splitlines():
        if line.startswith("= "):
            if lines:
                yield name, lines
            name, lines = line[2:], []
        elif line and not line.startswith("#"):
            lines.append(line)
    yield name, lines


def _unescaped(text: str) -> str:
    return text.encode().decode("unicode_escape")


def _comparable(text: str, side: str) -> list[str]:
    """Return the lines without those about the other side, and without deprecation warnings."""
    other = _JAVA if side == _OURS else _OURS
    return [
        line.rstrip().replace(side, "@")
        for line in re.sub(r"\tTopicId: \S+", "", text).splitlines()
        if other not in line and line.strip() and not _DEPRECATED.fullmatch(line)
    ]


def _run_both(
    pair: Pair, tools: KafkaTools, files: Collection[Path], line: str
) -> dict[str, ToolOutput]:
    command, _, text = line.partition(" <<< ")
    paths = {path.name: str(path) for path in files}
    done = {}
    for side in (_OURS, _JAVA):
        tool, *words = shlex.split(command.replace("@", side))
        stdin = _unescaped(text)
        # The JVM has a different current directory.
        words = [paths.get(word, word) for word in words]
        words = ["--bootstrap-server", pair.kafka.address, *words]
        if side == _OURS:
            done[side] = plog_here(tool, words, stdin=stdin.encode())
        else:
            done[side] = tools.attempt(_CLASSES[tool], *words, stdin=stdin)
    return done


def _write(directory: Path, name: str, text: str) -> None:
    for side in (_OURS, _JAVA):
        path = directory / name.replace("@", side)
        path.write_text(_unescaped(text.replace("@", side)))


def _is_same(line: str, ours: ToolOutput, java: ToolOutput) -> bool:
    if line.startswith("! "):
        return ours.code == java.code != 0 and len(ours.stderr.splitlines()) == 1
    outputs = [_comparable(ours.stdout, _OURS), _comparable(java.stdout, _JAVA)]
    if line.startswith("* "):
        outputs = [sorted(each) for each in outputs]
    return ours.code == java.code and outputs[0] == outputs[1]


@pytest.mark.parametrize("lines", [pytest.param(x, id=name) for name, x in _parts()])
def test_both_tools_print_the_same(
    pair: Pair, kafka_tools: KafkaTools, lines: list[str], tmp_path: Path
) -> None:
    different = []
    for line in lines:
        if line.startswith("$ "):
            _write(tmp_path, *line.split(" ", 2)[1:])
            continue
        done = _run_both(pair, kafka_tools, list(tmp_path.iterdir()), line.lstrip("*! "))
        if not _is_same(line, done[_OURS], done[_JAVA]):
            different.append(f"{line}\nours {done[_OURS]}\njava {done[_JAVA]}")
    assert not different, "\n\n".join(different)
