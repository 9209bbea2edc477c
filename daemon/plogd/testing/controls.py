"""The commands with which a test controls its broker, in addition to Kafka's requests.

Arguments and results are JSON values, so commands work the same way for a broker in the test's
process and in another process (control_channel.py). Tests use them through running_broker.py and
hooks.py. Reactor thread only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

from plog.errors import ErrorCode, KafkaError, UnknownTopicOrPartition, error_from_code
from plogd.controller.topic_creation import NewTopic
from plogd.ports import Later, failed, ready
from plogd.testing.hooked_dispatch import HookedDispatch, Rule, row_named

if TYPE_CHECKING:
    from plogd.service import BrokerService
    from plogd.testing.controlled_machine import ControlledMachine
    from plogd.testing.cuttable_peers import CuttablePeers


class Controls:
    """The commands for the broker of `service`, which runs on `machine`."""

    def __init__(self, service: BrokerService, machine: ControlledMachine) -> None:
        self._service = service
        self._machine = machine
        self._numbers = itertools.count(1)
        self._rules: dict[int, Rule] = {}
        """All rules since the last reset, including exhausted ones."""
        self._commands: Mapping[str, Callable[..., Any]] = {
            "add_hook": self._add_hook,
            "advance_time": machine.time.advance,
            "create_topic": self._create_topic,
            "cut_peer": lambda broker_id: self._peers.cut(broker_id),
            "delete_topic": self._delete_topic,
            "describe_topic": self._describe_topic,
            "heal_peer": lambda broker_id: self._peers.heal(broker_id),
            "hook_hits": lambda number: self._rules[number].hits,
            "is_controller": lambda: service.broker.controller.is_active,
            "live_brokers": lambda: list(service.broker.cache.live_brokers),
            "pass_turn": lambda: None,
            "peers_in_flight": lambda: self._peers.in_flight(),
            "remove_hook": self._remove_hook,
            "reset_hooks": self._reset_hooks,
            "wait_for_hook": lambda number, count: self._rules[number].when_hit(count),
        }

    def do(self, command: str, arguments: Mapping[str, Any]) -> Later[Any]:
        """Run a command; the result fails with ValueError or KafkaError if the command fails."""
        try:
            result = self._commands[command](**arguments)
        # Every error goes to the test: a control must not disturb the broker.
        except Exception as error:
            return failed(error)
        return result if isinstance(result, Later) else ready(result)

    @property
    def _requests(self) -> HookedDispatch:
        requests = self._machine.requests
        assert requests is not None, "the broker has no connections yet"
        return requests

    def _add_hook(
        self,
        request: str,
        action: Literal["delay", "drop", "fail"],
        error: tuple[int, str] | None,
        delay_ms: float,
        **filters: Any,
    ) -> int:
        rule = Rule(
            row=row_named(request),
            action=action,
            delay_ms=delay_ms,
            error=None if error is None else error_for_code(*error),
            **filters,
        )
        number = next(self._numbers)
        self._rules[number] = rule
        self._requests.rules.append(rule)
        return number

    def _remove_hook(self, number: int) -> int:
        rule = self._rules[number]
        # A rule that has reached its limit has been removed before.
        if rule in self._requests.rules:
            self._requests.rules.remove(rule)
        return rule.hits

    def _reset_hooks(self) -> list[tuple[int, int]]:
        """Remove all rules, and return the number of each rule with its hits."""
        self._requests.rules.clear()
        rules, self._rules = self._rules, {}
        return [(number, rule.hits) for number, rule in rules.items()]

    @property
    def _peers(self) -> CuttablePeers:
        peers = self._machine.peers
        assert peers is not None, "the broker has no connections to other brokers"
        return peers

    def _create_topic(
        self, name: str, partitions: int, config: Mapping[str, str], replication_factor: int = -1
    ) -> Later[None]:
        new = NewTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replication_factor,
            config=dict(config),
        )
        # A TopicState cannot be passed through the channel as JSON.
        return self._service.broker.controller.create_topic(new).map(lambda _: None)

    def _delete_topic(self, name: str) -> Later[None]:
        broker = self._service.broker
        topic = broker.cache.topic(name)
        if topic is None:
            raise UnknownTopicOrPartition(f"cannot delete topic {name!r}: it does not exist")
        return broker.controller.delete_topic(name, topic.topic_id)

    def _describe_topic(self, name: str) -> list[dict[str, Any]] | None:
        """Return the partitions that this broker shows to clients, or None."""
        topic = self._service.broker.cache.topic(name)
        if topic is None:
            return None
        return [
            {
                "partition": each.partition,
                "leader": each.leader,
                "replicas": list(each.replicas),
                "isr": list(each.isr),
            }
            for each in topic.partitions
        ]


def error_for_code(code: int, message: str) -> KafkaError:
    """Return an error with this code, even one that plog never raises. Raises ValueError."""
    try:
        known = ErrorCode(code)
    except ValueError:
        raise ValueError(f"unknown error code {code}: Kafka does not define it") from None
    if known == ErrorCode.NONE:
        raise ValueError("cannot fail a request with NONE: NONE is not an error")
    error = error_from_code(known, message or "a test's hook")
    if error.code == known:
        return error
    # plog.errors has no classes for errors that plog never raises or receives.
    error_class = type(known.name, (KafkaError,), {"code": known})
    error = error_class(message or "a test's hook")
    assert isinstance(error, KafkaError)
    return error
