"""The recorded public surface: a commit that changes it must also change the record."""

from __future__ import annotations

from tests.public_surface import GOLDEN, lines


def test_public_surface_matches_the_record() -> None:
    recorded = GOLDEN.read_text().splitlines()
    current = list(lines())
    assert current == recorded, (
        "the public surface changed; if that is intended, record it: "
        "python -m tests.public_surface > tests/public_surface.txt"
    )
