"""A partition's directory as bytes: captured once, damaged in many ways, loaded each time.

For tests that damage every byte: loading such an image takes less than a millisecond, a whole
`LogSite` takes many.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from plog.records.batch import HEADER_SIZE, crc_is_valid, iter_batches
from plog.types import TopicPartition
from plogd.log import file_names
from plogd.log.log import Log
from plogd.log.log_state import LogState
from plogd.log.producer_snapshot import SnapshotEntry
from plogd.log.recovery.load_request import LoadRequest
from plogd.log.recovery.log_recovery import load_log
from plogd.topic_config import TopicConfig
from tests.helpers.log.log_site import CONFIG
from tests.helpers.sim.sim_files import SimFiles

DIRECTORY = "/a/t-0"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogImage:
    """The files of one log by name, and the checkpoints of its log directory."""

    content_by_name: Mapping[str, bytes]
    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    now_ms: int = 0
    config: TopicConfig = CONFIG

    def with_file(self, name: str, content: bytes | None) -> LogImage:
        """Return the same image with different content of one file; None removes it."""
        contents = {**self.content_by_name, name: content}
        return replace(
            self,
            content_by_name={name: kept for name, kept in contents.items() if kept is not None},
        )

    def without(self, *suffixes: str) -> LogImage:
        """Return the same image without the files of some kinds."""
        contents = self.content_by_name
        kept = {name: contents[name] for name in contents if not name.endswith(suffixes)}
        return replace(self, content_by_name=kept)

    def load(
        self, *, clean: bool = False, prepare: Callable[[SimFiles], None] = lambda files: None
    ) -> LoadedLog:
        """Load the image as the start of a broker does; `prepare` is called with the files."""
        files = SimFiles([DIRECTORY])
        for name, content in self.content_by_name.items():
            file = files.open_append(f"{DIRECTORY}/{name}")
            file.append(content)
            file.close()
        prepare(files)
        request = LoadRequest(
            topic_partition=TopicPartition("t", 0),
            topic_id=bytes(range(16)),
            directory=DIRECTORY,
            log_dir="/a",
            config=self.config,
            clean=clean,
            recovery_point=self.recovery_point,
            high_watermark=self.high_watermark,
            log_start_offset=self.log_start_offset,
            producer_id_expiration_ms=1 << 40,
            now_ms=self.now_ms,
            monotonic_ms=0.0,
        )
        reports: list[str] = []
        state = load_log(
            files, request, lambda text, **fields: reports.append(text.format(**fields))
        )
        return LoadedLog(files=files, state=state, reports=reports)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedLog:
    """A log that has just been loaded."""

    files: SimFiles
    state: LogState
    reports: list[str] = field(default_factory=list)

    @property
    def contents(self) -> dict[str, bytes]:
        """Return the records and the indexes that are not empty, by file name."""
        kinds = (file_names.LOG_SUFFIX, file_names.INDEX_SUFFIX, file_names.TIME_INDEX_SUFFIX)
        found = {
            name: self.files.read_file(f"{DIRECTORY}/{name}")
            for name in self.files.listdir(DIRECTORY)
            if name.endswith(kinds)
        }
        return {name: content for name, content in found.items() if content}

    @property
    def producers(self) -> dict[int, SnapshotEntry]:
        """Return the producer state."""
        producers = self.state.producer_state.producers
        return {number: state.to_snapshot() for number, state in producers.items()}

    @property
    def summary(self) -> object:
        """Return all values that must be equal in equal logs."""
        state = self.state
        return (
            state.log_start_offset,
            state.log_end_offset,
            [segment.base_offset for segment in state.segments],
            self.contents,
            self.producers,
            state.leader_epochs.entries,
        )


def image_of(log: Log, files: SimFiles, *, now_ms: int = 0, **fields: int) -> LogImage:
    """Capture a log's directory now; `fields` are the values of the checkpoints."""
    return LogImage(
        content_by_name={
            name: files.read_file(f"{log.directory}/{name}")
            for name in files.listdir(log.directory)
        },
        now_ms=now_ms,
        config=log.config,
        **fields,
    )


def whole_batches(content: bytes) -> list[tuple[int, int, int]]:
    """Return (position, end position, first offset) of each batch; all must be valid."""
    found = []
    for position, header in iter_batches(content):
        assert header.size_bytes >= HEADER_SIZE
        assert crc_is_valid(content, position, header)
        found.append((position, position + header.size_bytes, header.base_offset))
    assert not found or found[-1][1] == len(content)
    return found
