"""The error policy: one table from the kind of an error to retries, recovery, billing and cool-down.

| kind            | retried       | states a wait | recovery of the call, in order  | billed  | summarizer cool-down |
|-----------------|---------------|---------------|---------------------------------|---------|----------------------|
| prompt_too_long | no            | no            | compact                         | no      | short                |
| output_cap      | no            | no            | lower the output cap, compact   | no      | short                |
| rate_limit      | yes           | yes           | next endpoint                   | no      | short                |
| overloaded      | yes           | yes           | next endpoint                   | depends | short                |
| auth            | no            | no            | fresh key, next endpoint        | no      | long                 |
| quota           | no            | yes           | next endpoint                   | no      | long                 |
| transport       | yes           | yes           | next endpoint                   | depends | short                |
| bad_request     | no            | no            | drop images over a stated limit | no      | long                 |
| unknown         | by its status | yes           | none                            | depends | short                |

The HTTP transport, the route cursor, the model call and the summarizer's cool-down all read it here, so that a kind
is never retried in one place and given up in another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from perdure.core.errors import ErrorKind, ErrorVerdict

RecoveryAction = Literal["compact", "lower_output", "drop_images", "reroute"]

# Statuses worth a retry where nothing else is known about the error.
RETRIED_STATUSES = frozenset({408, 425, 500, 502, 503, 504, 529})


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The treatment of one kind of provider error: recovery actions, retries, billing, and whether it lasts."""

    # What to try before giving up, in order; an action that is used up or impossible is skipped.
    recovery: tuple[RecoveryAction, ...] = ()
    # The same request to the same endpoint may succeed in a moment.
    is_retried: bool = False
    # The service may state how long to wait.
    has_wait: bool = False
    # The service refused the request before the model ran, so that nothing is billed.
    is_free: bool = False
    # It does not pass by itself: the summarizer cools down for long, at once.
    is_lasting: bool = False


POLICIES: Mapping[ErrorKind, ErrorPolicy] = {
    "prompt_too_long": ErrorPolicy(("compact",), is_free=True),
    "output_cap": ErrorPolicy(("lower_output", "compact"), is_free=True),
    "rate_limit": ErrorPolicy(("reroute",), is_retried=True, has_wait=True, is_free=True),
    "overloaded": ErrorPolicy(("reroute",), is_retried=True, has_wait=True),
    "auth": ErrorPolicy(("reroute",), is_free=True, is_lasting=True),
    "quota": ErrorPolicy(("reroute",), has_wait=True, is_free=True, is_lasting=True),
    "transport": ErrorPolicy(("reroute",), is_retried=True, has_wait=True),
    # Images are dropped only where the service states how many it takes: other bad requests stay bad.
    "bad_request": ErrorPolicy(("drop_images",), is_free=True, is_lasting=True),
    "unknown": ErrorPolicy(has_wait=True),
}


def is_retryable(verdict: ErrorVerdict) -> bool:
    """Whether the transport may send the same request again."""
    is_passing_status = verdict.kind == "unknown" and verdict.status in RETRIED_STATUSES
    return POLICIES[verdict.kind].is_retried or is_passing_status


def may_reroute(verdict: ErrorVerdict) -> bool:
    """Whether another endpoint may succeed where this one failed."""
    return "reroute" in POLICIES[verdict.kind].recovery
