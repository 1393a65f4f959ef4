"""Secrets out, everything else untouched.

A text is searched three times, each time first for a few telling bytes and only then, around what was found, with
exact patterns: for keys that carry their issuer's mark (`keys.py`, rows in `formats.py`, unlisted issuers in
`grammar.py`), for values of telling names (`named.py`, `names.py`; in cells and sentences `nearby.py`, under headers
`columns.py`), and for places that hold a secret whatever it looks like (`places.py`). `values.py` and `shapes.py`
decide whether a value is a stand-in, a word, or drawn at random. Read `formats.py` first.
"""

from __future__ import annotations

from collections.abc import Iterable

from perdure.redaction.assignments import named_values
from perdure.redaction.contexts import placed_secrets
from perdure.redaction.entropy import MARK
from perdure.redaction.prefixes import prefixed_keys
from perdure.redaction.scan import ScanText, Secret

__all__ = ["Secret", "are_clean", "find_secrets", "redact"]

# Between texts that are looked at together: no name, value or key goes on across it.
_APART = "\n\n\0\n\n"


def find_secrets(text: str) -> list[Secret]:
    """Every secret in the text, in order and apart from each other; never raises."""
    page = ScanText(text)
    secrets = [*prefixed_keys(page), *named_values(page), *placed_secrets(page)]
    secrets.sort(key=lambda s: (s.start, -s.end, not s.visible_prefix))
    apart: list[Secret] = []
    for secret in secrets:
        if _is_redacted(text, secret):
            continue
        if apart and secret.start < apart[-1].end:
            last = apart[-1]
            if secret.end > last.end:
                apart[-1] = Secret(last.kind, last.start, secret.end, last.visible_prefix)
            elif (
                secret.start == last.start
                and secret.end == last.end
                and secret.visible_prefix
                and not last.visible_prefix
            ):
                apart[-1] = secret
            continue
        apart.append(secret)
    return apart


def redact(text: str) -> str:
    """The text with every secret replaced by its recognisable start and [REDACTED]; a second time changes nothing."""
    # Taking one secret out can bring another to light beside it, so look again until there is none. Every round
    # takes at least one character that no later round can bring back, so this ends; mostly after the first look.
    while secrets := find_secrets(text):
        pieces, at = [], 0
        for secret in secrets:
            pieces += [text[at : secret.start], f"{secret.visible_prefix}…{MARK}" if secret.visible_prefix else MARK]
            at = secret.end
        text = "".join(pieces) + text[at:]
    return text


def are_clean(texts: Iterable[str]) -> bool:
    """Whether none of some texts holds a secret; one look at many short ones is several times quicker than many.

    Errs on the side of caution: a mark in one and a value in the next may count together.
    """
    return not find_secrets(_APART.join(texts))


def _is_redacted(text: str, secret: Secret) -> bool:
    """Whether an earlier round was here; a key block keeps its mark alone, so that a half-redacted one is finished."""
    if secret.kind == "private-key":
        return text[secret.start : secret.end] == MARK
    return MARK in text[secret.start : secret.end] or text.startswith((MARK, f"…{MARK}"), secret.end)
