"""DynamicBrokerConfig: which settings of clients concern this broker."""

from __future__ import annotations

from plogd.config import load_config
from plogd.config.dynamic_broker_config import DynamicBrokerConfig

STATIC = load_config([], ["node.id=7", "message.max.bytes=3"]).config


def test_settings_of_this_broker_override_those_of_all_brokers() -> None:
    config = DynamicBrokerConfig(STATIC)
    assert config.update("", {"message.max.bytes": "4"}) == "message.max.bytes=4"
    assert config.effective()[0].message_max_bytes == 4
    assert config.update("7", {"message.max.bytes": "5"}) == "message.max.bytes=5"
    assert config.effective()[0].message_max_bytes == 5
    assert config.update("7", {}) == "message.max.bytes removed"
    assert config.effective()[0].message_max_bytes == 4


def test_settings_of_another_broker_have_no_effect() -> None:
    config = DynamicBrokerConfig(STATIC)
    assert config.update("8", {"message.max.bytes": "4"}) is None
    assert config.effective() == (STATIC, [])


def test_settings_of_clients_override_new_settings_from_the_files() -> None:
    config = DynamicBrokerConfig(STATIC)
    config.update("", {"message.max.bytes": "4"})
    config.update_static(load_config([], ["node.id=7", "num.partitions=9"]).config)
    effective, problems = config.effective()
    assert (effective.message_max_bytes, effective.num_partitions, problems) == (4, 9, [])


def test_value_that_cannot_be_used_is_a_problem() -> None:
    config = DynamicBrokerConfig(STATIC)
    config.update("", {"message.max.bytes": "many"})
    effective, [problem] = config.effective()
    assert (effective.message_max_bytes, "many" in problem) == (3, True)
