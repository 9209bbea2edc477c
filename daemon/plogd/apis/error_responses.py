"""Error responses to requests that failed as a whole, for APIs with a top-level error code.

If an API has an error code per item, its `refuse_…` function is next to its handler.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from plog.errors import KafkaError
from plog.wire.schema import ApiMessage
from plogd.apis.request_context import RequestContext

Refusal: TypeAlias = Callable[[Any, RequestContext, KafkaError], ApiMessage]
"""Returns the response to a request that failed as a whole."""


def refuse_at_top_level(response: type[Any]) -> Refusal:
    """Return a function that sets the response's ``error_code``, and its message if it has one."""
    has_message = any(field.name == "error_message" for field in response.fields)

    def refuse(request: ApiMessage, context: RequestContext, error: KafkaError) -> ApiMessage:
        refused: ApiMessage = response(error_code=error.code)
        if has_message:
            refused.error_message = error.message  # type: ignore[attr-defined]  # see has_message
        return refused

    return refuse
