"""Loading a log whose transaction indexes are missing, damaged, or cannot be written."""

from __future__ import annotations

import errno
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import pytest

from plog.records.batch import iter_batches
from plog.records.builder import build_batch
from plog.records.codec import Record
from plogd.log import file_names
from plogd.log.recovery import transaction_recovery
from plogd.log.segment.index_file import CorruptIndex
from tests.helpers.log.log_data import T0
from tests.helpers.log.log_images import DIRECTORY, LoadedLog, LogImage, image_of
from tests.helpers.log.log_site import CONFIG, LogSite, base_offsets
from tests.helpers.log.transactions import TransactionLog, index_files
from tests.helpers.sim.sim_files import Operation, SimFiles

SMALL = replace(CONFIG, segment_bytes=700)
ENTRY = 34


@dataclass(frozen=True, slots=True)
class Example:
    """A log with transactions: its files after a stop, and the right content of its indexes."""

    image: LogImage
    clean: bool
    expected: dict[int, bytes]
    ongoing: dict[int, int]
    sealed: int
    """The base offset of a sealed segment with entries, which has transactions from before."""
    active: int

    def load(self, image: LogImage | None = None) -> LoadedLog:
        return (image or self.image).load(clean=self.clean)


@cache
def _example(*, clean: bool) -> Example:
    one = TransactionLog(LogSite().start())
    one.site.create("t-0", SMALL)
    one.data(9)
    for number in range(14):
        one.data(number % 3)
        one.data(4 + number % 2)
        if number % 4 == 3:
            one.commit(number % 3)
        else:
            one.abort(number % 3)
        if number % 5 == 4:
            one.abort(4 + number % 2)
        one.site.settle()
    one.abort(9)
    one.data(8)
    one.log.roll()
    one.data(2)
    one.abort(2)
    one.data(2)
    one.abort(2)
    one.site.settle()
    if clean:
        one.site.stop()
    log, expected = one.log, one.expected_index_files()
    end_offset = log.log_end_offset
    image = image_of(
        log,
        one.site.files.kill(),
        recovery_point=end_offset if clean else log.recovery_point,
        high_watermark=end_offset,
    )
    bases = base_offsets(log)
    assert len(bases) > 4
    assert len(expected[bases[-1]]) == 2 * ENTRY
    assert len(expected[bases[2]]) > ENTRY
    return Example(image, clean, expected, one.model.ongoing(), bases[2], bases[-1])


def _name(base_offset: int, suffix: str = file_names.TXN_INDEX_SUFFIX) -> str:
    return file_names.segment_file_name(base_offset, suffix)


def _check(example: Example, loaded: LoadedLog) -> None:
    """Check the indexes on disk, in memory, and after another load."""
    loaded.files.fail_no_more()
    assert index_files(loaded.files, DIRECTORY) == example.expected
    for segment in loaded.state.segments:
        expected = example.expected.get(segment.base_offset, b"")
        count = 0 if segment.transactions.index is None else segment.transactions.index.count
        assert count * ENTRY == len(expected)
    transactions = loaded.state.producer_state.transactions
    stable_offset = min(example.ongoing.values())
    assert transactions.stable_offset(loaded.state.high_watermark) == stable_offset
    files = loaded.files
    contents = {name: files.read_file(f"{DIRECTORY}/{name}") for name in files.listdir(DIRECTORY)}
    state = loaded.state
    again = replace(
        example.image, content_by_name=contents, recovery_point=state.recovery_point
    ).load()
    assert index_files(again.files, DIRECTORY) == example.expected


@pytest.fixture(params=[True, False], ids=["after a clean stop", "after a kill"])
def example(request: pytest.FixtureRequest) -> Example:
    return _example(clean=request.param)


def _damage(content: bytes, how: str) -> bytes | None:
    return {
        "missing": None,
        "empty": b"",
        "short": content[:-ENTRY],
        "torn": content[:-1],
        "over-long": content + b"\0",
        "with a zeroed entry": content + bytes(ENTRY),
        "with entries twice": content + content,
        "zeroed": bytes(len(content)),
        "garbage": b"\x77" * len(content),
    }[how]


DETECTABLE = ["torn", "over-long", "with a zeroed entry", "with entries twice", "zeroed", "garbage"]
UNDETECTABLE = ["missing", "empty", "short"]
"""As in Kafka, such an index looks like one of a segment with fewer aborted transactions."""


def test_undamaged_indexes_are_loaded_as_they_are(example: Example) -> None:
    loaded = example.load()
    _check(example, loaded)
    assert [report for report in loaded.reports if "index" in report] == []


@pytest.mark.parametrize("how", DETECTABLE)
@pytest.mark.parametrize("is_active", [False, True])
def test_damaged_index_is_rebuilt(example: Example, is_active: bool, how: str) -> None:
    name = _name(example.active if is_active else example.sealed)
    content = example.image.content_by_name.get(name, b"") or b"\x01" * ENTRY
    loaded = example.load(example.image.with_file(name, _damage(content, how)))
    _check(example, loaded)
    if example.clean or not is_active:
        assert [report for report in loaded.reports if "rebuilding an index" in report]


@pytest.mark.parametrize("how", DETECTABLE + UNDETECTABLE)
@pytest.mark.parametrize("is_active", [False, True])
@pytest.mark.parametrize("suffixes", [(".index",), (".timeindex",), (".index", ".timeindex")])
def test_index_is_rebuilt_together_with_another_missing_index(
    example: Example, is_active: bool, how: str, suffixes: tuple[str, ...]
) -> None:
    base_offset = example.active if is_active else example.sealed
    content = example.expected[base_offset]
    image = example.image.with_file(_name(base_offset), _damage(content, how))
    for suffix in suffixes:
        image = image.with_file(_name(base_offset, suffix), None)
    _check(example, example.load(image))


@pytest.mark.parametrize("how", UNDETECTABLE)
def test_index_of_the_active_segment_is_always_rebuilt_after_a_kill(how: str) -> None:
    example = _example(clean=False)
    content = example.expected[example.active]
    image = example.image.with_file(_name(example.active), _damage(content, how))
    _check(example, example.load(image))


@pytest.mark.parametrize("suffixes", [(".txnindex", ".index"), (".txnindex", ".timeindex")])
def test_all_indexes_can_be_rebuilt(example: Example, suffixes: tuple[str, ...]) -> None:
    _check(example, example.load(example.image.without(*suffixes)))


@pytest.mark.parametrize("recovery_point", [0, 1, 15, 40])
def test_all_indexes_are_rebuilt_from_an_older_recovery_point(recovery_point: int) -> None:
    example = replace(_example(clean=False))
    bases = sorted(example.expected)
    reread = [base for base in bases if base >= max(b for b in [0, *bases] if b <= recovery_point)]
    image = replace(example.image, recovery_point=recovery_point)
    for base in reread:
        image = image.with_file(_name(base), None)
    _check(example, example.load(image))


def test_indexes_are_rebuilt_without_any_snapshot(example: Example) -> None:
    image = example.image.without(".snapshot", ".txnindex", ".index")
    _check(example, example.load(image))


def test_damaged_snapshots_are_not_used(example: Example) -> None:
    image = example.image.without(".txnindex", ".index")
    for name in image.content_by_name:
        if name.endswith(".snapshot"):
            image = image.with_file(name, b"\0\x01damaged")
    _check(example, example.load(image))


def test_index_without_records_is_removed(example: Example) -> None:
    image = example.image.with_file(_name(777777), example.expected[example.active])
    loaded = example.load(image)
    _check(example, loaded)
    assert not loaded.files.exists(f"{DIRECTORY}/{_name(777777)}")


def test_index_of_a_segment_without_aborted_transactions_is_removed_after_a_kill() -> None:
    one = TransactionLog(LogSite().start())
    one.site.create("t-0", SMALL)
    one.data(1)
    one.commit(1)
    one.site.settle()
    image = image_of(one.log, one.site.files.kill(), high_watermark=2)
    stale = _example(clean=True).expected[0]
    loaded = image.with_file(_name(0), stale).load()
    assert not loaded.files.exists(f"{DIRECTORY}/{_name(0)}")
    assert loaded.state.segments[0].transactions.index is None


# -- damaged records --------------------------------------------------------------------------


def test_transactions_after_damaged_records_are_included_in_a_rebuilt_index() -> None:
    """Consumers skip the damage, and must not get the aborted records before it."""
    example = _example(clean=True)
    name = _name(example.sealed, ".log")
    content = bytearray(example.image.content_by_name[name])
    positions = [position for position, _ in iter_batches(content)]
    content[positions[1] + 16] ^= 0xFF  # The magic byte of a batch with data.
    _, header = list(iter_batches(example.image.content_by_name[name]))[1]
    assert not header.is_control
    image = example.image.with_file(name, bytes(content)).with_file(_name(example.sealed), b"\1")
    loaded = example.load(image)
    found = index_files(loaded.files, DIRECTORY)[example.sealed]
    assert found == example.expected[example.sealed]


@pytest.mark.parametrize("key", [b"", b"\0", b"\0\0\0\1"])
def test_marker_with_an_unreadable_record_does_not_prevent_loading(key: bytes) -> None:
    example = _example(clean=False)
    name = _name(example.active, ".log")
    end_offset = example.image.high_watermark
    broken = build_batch(
        [Record(timestamp=T0, key=key, value=b"")],
        base_offset=end_offset,
        producer_id=8,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
        partition_leader_epoch=0,
    )
    image = example.image.with_file(name, example.image.content_by_name[name] + broken)
    _check(example, example.load(image))


# -- full disks -------------------------------------------------------------------------------


def _load_with(example: Example, image: LogImage, fault: Callable[[Operation], bool]) -> bool:
    """Load the image on a failing disk; return whether that succeeded with all indexes."""

    def fail(files: SimFiles) -> None:
        files.fail_when(fault, errno.ENOSPC)

    try:
        loaded = image.load(clean=example.clean, prepare=fail)
    except OSError:
        return False
    _check(example, loaded)
    return True


@pytest.mark.parametrize("suffixes", [(), (".txnindex",), (".txnindex", ".index")])
def test_full_disk_at_any_operation_never_leaves_an_index_out(
    example: Example, suffixes: tuple[str, ...]
) -> None:
    if suffixes == (".txnindex",):
        # A missing file is noticed only in a segment that is read again.
        image = example.image.with_file(_name(example.active), b"\1")
        image = image.with_file(_name(example.sealed), b"\1")
    else:
        image = example.image.without(*suffixes)
    operations: list[Operation] = []
    image.load(clean=example.clean, prepare=lambda files: _record(files, operations))
    outcomes = set()
    for operation in operations:
        outcomes.add(_load_with(example, image, partial(_is_at, operation.number)))
        outcomes.add(_load_with(example, image, partial(_is_from, operation.number)))
    assert not suffixes or False in outcomes


def _is_at(number: int, operation: Operation) -> bool:
    return operation.number == number and not operation.is_read


def _is_from(number: int, operation: Operation) -> bool:
    return operation.number >= number and not operation.is_read


def _record(files: SimFiles, operations: list[Operation]) -> None:
    def observe(operation: Operation) -> None:
        if operation.name in ("create", "append", "truncate", "rename", "unlink", "mkdir"):
            operations.append(operation)

    files.on_operation = observe


def test_full_disk_does_not_matter_if_the_index_is_complete(example: Example) -> None:
    image = example.image
    for base_offset, content in example.expected.items():
        image = image.with_file(_name(base_offset), content)
    assert _load_with(
        example, image, lambda one: ".txnindex" in one.path and one.name in ("create", "append")
    )


def test_error_names_the_file_that_could_not_be_written() -> None:
    example = _example(clean=False)
    image = example.image.with_file(_name(example.active), None)
    with pytest.raises(OSError, match=r"txnindex"):
        image.load(
            prepare=lambda files: files.fail_when(
                lambda one: ".txnindex" in one.path and one.name == "append", errno.ENOSPC
            )
        )


def test_broker_with_a_full_disk_reports_the_log_and_loads_it_later() -> None:
    one = TransactionLog(LogSite().start())
    one.site.create("t-0", SMALL)
    one.data(1)
    one.abort(1)
    one.site.settle()
    site = one.site.next_life()
    site.files.fail_when(lambda operation: ".txnindex" in operation.path, errno.ENOSPC)
    site.settle(site.manager.open_directories())
    site.settle(site.manager.load_logs(site._topic_of))
    assert site.offline == ["/a"]
    site.files.fail_no_more()
    one.continue_on(site.kill())
    one.check()
    assert one.index_files() == one.expected_index_files() != {}


def test_index_can_be_replaced_twice_in_one_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last segment of a clean stop has lost its end and its other indexes."""
    opened: list[object] = []
    closed: list[object] = []
    index_class = transaction_recovery.TransactionRecovery
    example = _example(clean=True)
    name = _name(example.active, ".log")
    content = example.image.content_by_name[name]
    *_, (position, _) = iter_batches(content)
    image = example.image.with_file(name, content[:position])
    image = image.with_file(_name(example.active, ".index"), None)
    replace_index = index_class.replace_index

    def note(self: object, segment: object) -> None:
        closed.append(segment.transactions.index)  # type: ignore[attr-defined]
        replace_index(self, segment)  # type: ignore[arg-type]
        opened.append(segment.transactions.index)  # type: ignore[attr-defined]

    monkeypatch.setattr(index_class, "replace_index", note)
    loaded = example.load(image)
    found = index_files(loaded.files, DIRECTORY)
    assert found[example.active] == example.expected[example.active][:ENTRY]
    assert len(opened) == 2
    with pytest.raises((OSError, CorruptIndex, ValueError)):
        opened[0].file.pread(1, 0)  # type: ignore[attr-defined]
