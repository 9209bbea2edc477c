"""The public surface: a change of it must be seen in the change that makes it."""

from __future__ import annotations

from tests.public_surface import GOLDEN, lines


def test_public_surface_is_the_recorded_one() -> None:
    recorded = GOLDEN.read_text().splitlines()
    current = list(lines())
    assert current == recorded, (
        "if this change is wanted, record it: "
        "python -m tests.public_surface > tests/public_surface.txt"
    )
