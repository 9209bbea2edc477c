"""A fixture for the record codec in both of its forms, interpreted and compiled."""

from __future__ import annotations

from types import ModuleType

import pytest

from tests.helpers import codec_forms


@pytest.fixture(scope="module", params=codec_forms.FORMS)
def codec(request: pytest.FixtureRequest) -> ModuleType:
    """Return plog.records.codec; tests with this fixture run once for each form."""
    return codec_forms.need(request.param)
