"""What a client asks to become of a resource's settings, and what they are then.

Pure: texts in, texts out. Whether the outcome is allowed is for the resource's own table to say
(topic_config.py, dynamic_config.py); writing it down is controller/configs.py's work.
Source: Kafka 4.3 ConfigurationControlManager, ConfigAdminManager.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from plog.enums import AlterOperation
from plog.errors import InvalidConfig, InvalidRequest
from plog.settings import Setting, SettingType

_ITEMS_END: Final = ","
_VALUE_MAX_BYTES: Final = 32_767
"""Appending could make a value that is too long for the answer that describes it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """One setting's change; a value of None is one the client left out."""

    name: str
    operation: int
    value: str | None


def check_names(names: Iterable[str]) -> None:
    """Raise InvalidRequest if a setting is named twice."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise InvalidRequest(f"Error due to duplicate config keys: {', '.join(twice)}")


def check_values(values: Iterable[tuple[str, str | None]]) -> None:
    """Raise InvalidRequest if a value is missing where one is needed."""
    missing = [name for name, value in values if value is None]
    if missing:
        raise InvalidRequest(f"Null value not supported for : {', '.join(missing)}")


def check_alterations(alterations: Sequence[Alteration]) -> None:
    """Raise InvalidRequest for what makes no sense, whatever the settings are."""
    check_names(one.name for one in alterations)
    check_values(
        (one.name, one.value) for one in alterations if one.operation != AlterOperation.DELETE
    )
    for one in alterations:
        if not AlterOperation(one.operation).is_known:
            raise InvalidRequest(f"{one.name}: there is no operation {one.operation}")


def altered(
    current: Mapping[str, str], alterations: Sequence[Alteration], rows: Mapping[str, Setting]
) -> dict[str, str]:
    """The settings of a resource that has `current` after `alterations` that were checked.

    What is appended to, or subtracted from, a list nobody has set is the setting's own default,
    not what a topic would inherit; as in Kafka. Raises InvalidConfig for what is no list, or gets
    too long.

    >>> altered({"a": "1", "b": "2"}, [Alteration(name="b", operation=1, value=None)], {})
    {'a': '1'}
    """
    new = dict(current)
    for one in alterations:
        if one.operation == AlterOperation.DELETE:
            new.pop(one.name, None)
            continue
        assert one.value is not None
        if one.operation == AlterOperation.SET:
            new[one.name] = one.value
        else:
            new[one.name] = _with_items(one, new.get(one.name), rows)
    return new


def _with_items(one: Alteration, text: str | None, rows: Mapping[str, Setting]) -> str:
    row = rows.get(one.name)
    if row is None or row.type is not SettingType.LIST:
        operation = AlterOperation(one.operation).name
        raise InvalidConfig(f"Can't {operation} to key {one.name} because its type is not LIST.")
    items = _items(row.format(row.default) if text is None else text)
    asked = _items(one.value)
    if one.operation == AlterOperation.APPEND:
        # Nothing at all is appended as an empty item, which the setting's row refuses.
        items += [item for item in dict.fromkeys(asked or [""]) if item not in items]
    else:
        items = [item for item in items if item not in asked]
    joined = _ITEMS_END.join(items)
    if len(joined.encode()) > _VALUE_MAX_BYTES:
        raise InvalidConfig(f"{one.name}: its value would be longer than {_VALUE_MAX_BYTES} bytes.")
    return joined


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in text.split(_ITEMS_END)] if text else []
