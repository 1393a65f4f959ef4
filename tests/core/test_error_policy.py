"""One table decides what is done about each kind of error."""

from __future__ import annotations

from typing import get_args

import pytest

from perdure.core.error_policy import POLICIES, is_retryable, may_reroute
from perdure.core.errors import ErrorKind, ErrorVerdict

KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)


@pytest.mark.spec("G1")
def test_every_kind_of_error_has_one_policy() -> None:
    assert set(POLICIES) == set(KINDS)


def test_a_kind_that_is_retried_may_state_a_wait() -> None:
    assert all(policy.has_wait for policy in POLICIES.values() if policy.is_retried)


@pytest.mark.spec("J10")
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_retried_may_go_to_another_endpoint_afterwards(kind: ErrorKind) -> None:
    assert may_reroute(ErrorVerdict(kind)) or not is_retryable(ErrorVerdict(kind))


def test_an_unknown_error_is_retried_by_its_status_only() -> None:
    assert is_retryable(ErrorVerdict("unknown", status=503))
    assert not is_retryable(ErrorVerdict("unknown", status=418))
    assert not is_retryable(ErrorVerdict("unknown"))
