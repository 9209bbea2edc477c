"""Apply the operations of AlterConfigs and IncrementalAlterConfigs to a resource's settings.

Values are strings here: topic_config.py and dynamic_config.py validate the result, and
controller/configs.py stores it.
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
# A string in DescribeConfigs has at most this length, which repeated appends could exceed.
_VALUE_MAX_BYTES: Final = 32_767


@dataclass(frozen=True, slots=True, kw_only=True)
class Alteration:
    """A change to one setting; `value` is None if the request has a null value."""

    name: str
    operation: int
    value: str | None


def check_names(names: Iterable[str]) -> None:
    """Raise InvalidRequest if a setting occurs more than once."""
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        # The message is Kafka's, because clients show it to their users.
        raise InvalidRequest(f"Error due to duplicate config keys: {', '.join(twice)}")


def check_values(values: Iterable[tuple[str, str | None]]) -> None:
    """Raise InvalidRequest if a value is None."""
    missing = [name for name, value in values if value is None]
    if missing:
        raise InvalidRequest(f"Null value not supported for : {', '.join(missing)}")


def check_alterations(alterations: Sequence[Alteration]) -> None:
    """Raise InvalidRequest for duplicate names, missing values and unknown operations."""
    check_names(one.name for one in alterations)
    check_values(
        (one.name, one.value) for one in alterations if one.operation != AlterOperation.DELETE
    )
    for one in alterations:
        if not AlterOperation(one.operation).is_known:
            raise InvalidRequest(f"cannot alter {one.name}: unknown operation {one.operation}")


def apply_alterations(
    current: Mapping[str, str], alterations: Sequence[Alteration], rows: Mapping[str, Setting]
) -> dict[str, str]:
    """Return the settings that result from applying checked `alterations` to `current`.

    Raises:
        InvalidConfig: the setting is not a list, or the list would become too long.

    >>> deletion = Alteration(name="b", operation=1, value=None)
    >>> apply_alterations({"a": "1", "b": "2"}, [deletion], {})
    {'a': '1'}
    """
    # A copy, because values in the metadata store must not be changed in place.
    new = dict(current)
    for one in alterations:
        if one.operation == AlterOperation.DELETE:
            # As in Kafka, deleting a setting that is not set succeeds.
            new.pop(one.name, None)
            continue
        assert one.value is not None  # `check_values` has rejected null values.
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
    # As in Kafka, an unset list starts from the setting's own default, not from the value that a
    # topic inherits.
    items = _items(row.format(row.default) if text is None else text)
    asked = _items(one.value)
    if one.operation == AlterOperation.APPEND:
        # Appending an empty value adds an empty item, which the setting's validation rejects.
        items += [item for item in dict.fromkeys(asked or [""]) if item not in items]
    else:
        # As in Kafka, items that are not in the list are ignored.
        items = [item for item in items if item not in asked]
    joined = _ITEMS_END.join(items)
    if len(joined.encode()) > _VALUE_MAX_BYTES:
        raise InvalidConfig(
            f"cannot append to {one.name}: the value would be longer than {_VALUE_MAX_BYTES} bytes"
        )
    return joined


def _items(text: str | None) -> list[str]:
    return [item.strip() for item in text.split(_ITEMS_END)] if text else []
