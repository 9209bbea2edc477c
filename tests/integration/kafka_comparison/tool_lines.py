"""Command lines that run with plog's tools and then with Kafka's own, and their comparison.

tool_lines.txt describes the format of the files.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.helpers.plog_here import plog_here
from tests.helpers.programs.kafka_tools import KafkaTools, ToolOutput

_OURS, _JAVA = "byplog", "byjava"
_CLASSES = {
    "configs": "ConfigCommand",
    "console-consumer": "ConsoleConsumer",
    "console-producer": "ConsoleProducer",
    "consumer-groups": "ConsumerGroupCommand",
    "delete-records": "DeleteRecordsCommand",
    "get-offsets": "GetOffsetShell",
    "leader-election": "LeaderElectionCommand",
    "log-dirs": "LogDirsCommand",
    "reassign-partitions": "ReassignPartitionsCommand",
    "topics": "TopicCommand",
}
_DEPRECATED = re.compile(r"(Warning: |Option )--?[\w.-]+ is deprecated and will be removed .*")


def sections(table: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the lines of each section of a file."""
    name, lines = "", list[str]()
    for line in table.read_text().splitlines():
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
    servers: str, tools: KafkaTools, files: Collection[Path], line: str
) -> dict[str, ToolOutput]:
    command, _, text = line.partition(" <<< ")
    paths = {path.name: str(path) for path in files}
    done = {}
    for side in (_OURS, _JAVA):
        tool, *words = shlex.split(command.replace("@", side))
        stdin = _unescaped(text)
        # The JVM has a different current directory.
        words = [paths.get(word, word) for word in words]
        words = ["--bootstrap-server", servers, *words]
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


def differences(
    servers: str, tools: KafkaTools, lines: Collection[str], directory: Path
) -> list[str]:
    """Run the lines of a section, with files in `directory`; describe the lines that differ."""
    different = []
    for line in lines:
        if line.startswith("$ "):
            _write(directory, *line.split(" ", 2)[1:])
            continue
        done = _run_both(servers, tools, list(directory.iterdir()), line.lstrip("*! "))
        if not _is_same(line, done[_OURS], done[_JAVA]):
            different.append(f"{line}\nours {done[_OURS]}\njava {done[_JAVA]}")
    return different
