"""plog/cli/cluster.py at a whole broker."""

from __future__ import annotations

import json

from plog.cli.cluster import configure
from tests.unit.cli.conftest import CliSite, Output


def _run(site: CliSite, tool: str, *words: str) -> Output:
    servers = ["--bootstrap-server", site.sim.bootstrap_servers[0]]
    return site.ended(configure, [tool, *servers, *words])


def test_the_id_is_told(site: CliSite) -> None:
    cluster_id = site.broker.broker.cluster_id
    assert _run(site, "cluster-id").out == f"Cluster ID: {cluster_id}\n"
    assert json.loads(_run(site, "cluster-id", "--json").out) == {"cluster_id": cluster_id}


def test_the_brokers_are_told(site: CliSite) -> None:
    head, row = _run(site, "list-endpoints").lines
    assert head == "ID         HOST      PORT       RACK       STATE      ENDPOINT_TYPE  "
    assert row == "1          127.0.0.1 9092       null       unfenced   broker         "
    assert _run(site, "list-endpoints", "--include-fenced-brokers").lines == [head, row]
    [broker] = json.loads(_run(site, "list-endpoints", "--json").out)
    assert (broker["id"], broker["fenced"]) == (1, False)


def test_the_servers_have_a_short_name_and_are_needed(site: CliSite) -> None:
    servers = site.sim.bootstrap_servers[0]
    assert site.ended(configure, ["cluster-id", "-b", servers]).code == 0
    missing = site.ended(configure, ["cluster-id"])
    assert missing.code == 1
    assert "bootstrap.servers" in missing.err
