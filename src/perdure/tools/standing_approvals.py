"""The kinds of risk that a user allowed for good, as they are stored, and what each of them means.

Apart from `approval`, so that a command that only lists them does not load what runs tools.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence

from perdure.core.ports import KeyValue
from perdure.core.visibility import AnyUser
from perdure.tools.shell_safety.types import KINDS


def approved_kinds(approvals: KeyValue, user: AnyUser) -> list[str]:
    """Return the kinds of risk that a user allowed with "always"."""
    stored = approvals.get(user.stored_key)
    return [kind for kind in stored if isinstance(kind, str)] if isinstance(stored, list) else []


def describe_standing_approvals(always: Sequence[str], session: Sequence[str] = ()) -> Iterator[str]:
    """Yield a line for each kind of risk that is no longer asked about, as the rules of a permission mode are shown."""
    for kind in always:
        yield f"always {kind}: {explain_kind(kind)}  (`perdure approvals revoke {shlex.quote(kind)}` asks again)"
    for kind in session:
        yield f"now    {kind}: {explain_kind(kind)}  (until the program ends)"


def explain_kind(kind: str) -> str:
    """Describe a kind of risk; "" for an unknown one."""
    if kind in KINDS:
        return KINDS[kind].why
    if kind.startswith("command:"):
        return "this very command"
    if kind.startswith("program:"):
        return "calls of this program, of which it is not known what it does"
    return "calls of this tool" if kind.startswith("tool:") else ""
