"""plog/records/crc32c.py: published vectors, all implementations, and the choice of one."""

from __future__ import annotations

import crc32c as package
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plog.records import crc32c as module
from plog.records.crc32c import choose, crc32c, passes_self_test

# RFC 3720, appendix B.4, which lists the bytes of the register in wire order.
VECTORS = (
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
)


def _isal_or_skip() -> module.Crc32c:
    try:
        return module._isal()
    except (OSError, AttributeError) as error:
        pytest.skip(f"no libisal2: {error}")


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_checksum_equals_published_vectors(data: bytes, expected: int) -> None:
    assert crc32c(data) == expected


@pytest.mark.parametrize(("data", "expected"), VECTORS)
def test_libisal_equals_published_vectors(data: bytes, expected: int) -> None:
    assert _isal_or_skip()(data) == expected


@given(st.binary(max_size=300), st.integers(0, 300))
def test_checksum_can_be_chained(data: bytes, cut: int) -> None:
    assert crc32c(data[cut:], crc32c(data[:cut])) == crc32c(data)


@given(st.binary(max_size=300), st.integers(0, 300))
def test_libisal_agrees_on_any_buffer(data: bytes, cut: int) -> None:
    isal = _isal_or_skip()
    assert isal(bytearray(data)) == package.crc32c(data)
    assert isal(memoryview(data)[cut:], isal(memoryview(bytearray(data))[:cut])) == isal(data)


def test_libisal_splits_data_larger_than_c_int(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_ISAL_BYTES", 7)
    assert _isal_or_skip()(bytes(range(32))) == 0x46DD794E


def test_libisal_leaves_no_buffer_locked() -> None:
    isal = _isal_or_skip()
    data = bytearray(b"123456789")
    isal(data)
    data.append(0)  # Raises BufferError if the buffer is still locked.
    with pytest.raises(BufferError):
        isal(memoryview(b"123456789")[::2])


def test_hardware_is_preferred(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "hardware_based", True, raising=False)
    assert choose()[1] == "crc32c (hardware)"


def _without_hardware(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "hardware_based", False, raising=False)


def test_libisal_is_preferred_to_software(monkeypatch: pytest.MonkeyPatch) -> None:
    _without_hardware(monkeypatch)
    monkeypatch.setattr(module, "_isal", lambda: package.crc32c)
    assert choose() == (package.crc32c, "libisal2")


@pytest.mark.parametrize("error", [OSError, AttributeError])
def test_software_is_used_when_libisal_is_missing(
    monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    def missing() -> module.Crc32c:
        raise error

    _without_hardware(monkeypatch)
    monkeypatch.setattr(module, "_isal", missing)
    assert choose()[1] == "crc32c (software)"


def test_library_that_fails_self_test_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    def inverted(data: module.Buffer, value: int = 0, /) -> int:
        return int(package.crc32c(data, value)) ^ 0xFFFFFFFF

    assert not passes_self_test(inverted)
    _without_hardware(monkeypatch)
    monkeypatch.setattr(module, "_isal", lambda: inverted)
    assert choose()[1] == "crc32c (software)"


def test_import_fails_when_no_implementation_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_candidates", lambda: iter(()))
    with pytest.raises(ImportError, match="self-test"):
        choose()
