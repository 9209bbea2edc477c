"""The record codec in both of its forms, interpreted and compiled."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.helpers import codec_forms


@pytest.fixture(scope="module", params=codec_forms.FORMS)
def codec(request: pytest.FixtureRequest) -> ModuleType:
    """plog.records.codec; the tests that take it run once for each form."""
    return codec_forms.need(request.param)
