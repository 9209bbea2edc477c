"""``plog broker-api-versions``: print the request versions that each broker serves.

"Usable" is the version that plog's client would choose, as Kafka's tool prints the version that
Kafka's client would choose. Source: Kafka 4.3 BrokerApiVersionsCommand, NodeApiVersions.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from plog.cli.admin_client import run_admin
from plog.cli.options import add_admin_options
from plog.cli.output import Table, show
from plog.cli.parser import add_examples
from plog.client.admin.brokers import BrokerAdmin, BrokerApiVersions
from plog.client.admin.values import BrokerDescription, VersionRange
from plog.client.network.cluster import Cluster
from plog.errors import KafkaError
from plog.wire.api_keys import ApiKey
from plog.wire.messages import API_BY_KEY


def configure(parser: argparse.ArgumentParser) -> None:
    """Print the request versions that each broker supports."""
    add_admin_options(parser)
    add_examples(
        parser,
        (
            "show the versions of all brokers",
            "plog broker-api-versions --bootstrap-server localhost:9092",
        ),
    )
    parser.set_defaults(run=lambda arguments: run_admin(arguments, lambda c: run(c, arguments)))


async def run(cluster: Cluster, arguments: argparse.Namespace) -> int:
    """Print the versions that each broker serves; return 1 if a broker did not respond."""
    admin = BrokerAdmin(cluster)
    responses = await admin.api_versions()
    brokers = (await admin.describe_cluster()).brokers
    # A broker can stop between the two requests. Then only its id is known.
    shown = [
        (node_text(brokers[number]) if number in brokers else str(number), response)
        for number, response in responses.items()
    ]
    show(
        lambda: (line for name, response in shown for line in lines(name, response)),
        lambda: (_table(name, response) for name, response in shown),
        lambda: [_as_data(number, response) for number, response in responses.items()],
        as_json=arguments.json,
    )
    return 1 if responses.errors else 0


def node_text(broker: BrokerDescription) -> str:
    """Return the description of a broker in the format of Kafka's tools."""
    rack = "null" if broker.rack is None else broker.rack
    # Java prints booleans in lower case.
    fenced = str(broker.is_fenced).lower()
    return f"{broker.host}:{broker.port} (id: {broker.id} rack: {rack} isFenced: {fenced})"


def lines(name: str, response: BrokerApiVersions | KafkaError) -> Iterator[str]:
    """Yield the lines that Kafka's tool prints for one broker."""
    if isinstance(response, KafkaError):
        yield f"{name} -> ERROR: {response.message}"
        return
    rows = [f"\t{api_name(key)}({key}): {text}" for key, text in _texts(response.apis).items()]
    yield f"{name} -> ("
    # The lines form one item, because no comma follows the last one.
    yield ",\n".join(rows)
    yield ")"


def _texts(apis: Mapping[int, VersionRange]) -> dict[int, str]:
    """Return the text to print for each API, keyed by API key."""
    # As in Kafka's tool, the APIs that the client knows but the broker does not serve are listed.
    return {
        key: version_text(key, apis[key]) if key in apis else "UNSUPPORTED"
        for key in sorted({*apis, *API_BY_KEY})
    }


def version_text(key: int, served: VersionRange) -> str:
    """Return the served versions of an API, and the version that plog's client would choose.

    >>> version_text(3, VersionRange(0, 99)), version_text(999, VersionRange(2, 2))
    ('0 to 99 [usable: 13]', '2')
    """
    lowest, highest = served
    text = f"{lowest}" if lowest == highest else f"{lowest} to {highest}"
    # A newer broker may serve APIs that this client does not know; `ApiKey` would raise ValueError
    # for their keys.
    api = API_BY_KEY.get(ApiKey(key)) if key in ApiKey.__members__.values() else None
    if api is None:
        return text
    if api.request.max_version < lowest:
        return f"{text} [unusable: node too new]"
    if highest < api.request.min_version:
        return f"{text} [unusable: node too old]"
    # As in Kafka's NodeApiVersions, a client uses the latest version that both sides know.
    return f"{text} [usable: {min(highest, api.request.max_version)}]"


def api_name(key: int) -> str:
    """Return Kafka's name for an API.

    >>> api_name(18), api_name(999)
    ('ApiVersions', 'UNKNOWN')
    """
    if key not in ApiKey.__members__.values():
        return "UNKNOWN"
    return "".join(word.capitalize() for word in ApiKey(key).name.split("_"))


def _table(name: str, response: BrokerApiVersions | KafkaError) -> Table:
    if isinstance(response, KafkaError):
        return Table((name,), [(f"ERROR: {response.message}",)])
    return Table(
        (name, "KEY", "VERSIONS"),
        [(api_name(key), key, text) for key, text in _texts(response.apis).items()],
    )


def _as_data(number: int, response: BrokerApiVersions | KafkaError) -> dict[str, object]:
    if isinstance(response, KafkaError):
        return {"broker": number, "error": response.message}
    return {
        "broker": number,
        "apis": [
            {"key": key, "name": api_name(key), "min": served.lowest, "max": served.highest}
            for key, served in response.apis.items()
        ],
    }
