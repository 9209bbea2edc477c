"""The answers to requests that failed as a whole, for APIs with one place for an error.

An API whose errors are told item by item has a `refuse_…` of its own beside its handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plog.errors import KafkaError
from plog.wire.schema import ApiMessage
from plogd.apis.request_context import RequestContext

Refusal: TypeAlias = Callable[[Any, RequestContext, KafkaError], ApiMessage]
"""Makes the answer to a request that failed as a whole."""


def refuse_at_top_level(response: type[Any]) -> Refusal:
    """Refuse by the response's own ``error_code``, with a message if it has a place for one."""
    has_message = any(field.name == "error_message" for field in response.fields)

    def refuse(request: ApiMessage, context: RequestContext, error: KafkaError) -> ApiMessage:
        told: ApiMessage = response(error_code=error.code)
        if has_message:
            told.error_message = error.message  # type: ignore[attr-defined]  # it is there
        return told

    return refuse
