"""plog/cli/broker_api_versions.py against a simulated broker."""

from __future__ import annotations

import json

import pytest

from plog.cli.broker_api_versions import configure, lines, version_text
from plog.client.admin.values import VersionRange
from plog.errors import KafkaError
from plog.wire.messages import API_BY_KEY
from tests.unit.cli.conftest import CliSite


def test_every_api_is_printed_on_a_line(site: CliSite) -> None:
    result = site.tool(configure)()
    head, *middle, end = result.lines
    assert head == "127.0.0.1:9092 (id: 1 rack: null isFenced: false) -> ("
    assert end == ")"
    assert middle[0].startswith("\tProduce(0): ")
    assert all(line.endswith(",") for line in middle[:-1])
    assert not middle[-1].endswith(",")
    versions = API_BY_KEY[18].request
    line = f"\tApiVersions(18): 0 to {versions.max_version} [usable: {versions.max_version}],"
    assert line in middle


def test_failed_broker_is_printed_on_a_line() -> None:
    assert list(lines("b:1", KafkaError("no response"))) == ["b:1 -> ERROR: no response"]


@pytest.mark.parametrize(
    ("served", "text"),
    [
        (VersionRange(90, 99), "90 to 99 [unusable: node too new]"),
        (VersionRange(2, 2), "2 [usable: 2]"),
    ],
)
def test_version_text_reports_usable_version_or_too_new_broker(
    served: VersionRange, text: str
) -> None:
    assert version_text(18, served) == text


def test_version_text_reports_too_old_broker() -> None:
    key = next(key for key, api in API_BY_KEY.items() if api.request.min_version > 0)
    assert version_text(key, VersionRange(0, 0)) == "0 [unusable: node too old]"


def test_json_contains_version_ranges(site: CliSite) -> None:
    [broker] = json.loads(site.tool(configure)("--json").out)
    assert broker["broker"] == 1
    [versions] = [api for api in broker["apis"] if api["key"] == 18]
    assert (versions["name"], versions["min"]) == ("ApiVersions", 0)
