"""Project a compacted view to valid messages to send, with a long head shortened.

The projection is never stored, and pure: the same view gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence

from perdure.core import rules
from perdure.core.messages import Message, TextPart
from perdure.models.tokens import estimate_message, estimate_text

_LEAST_SHOWN_TOKENS = 40
# Share of the head's budget that one tool result may take.
_RESULT_SHARE = 0.15


def project(messages: Sequence[Message], *, head_tokens: int, addresses: Sequence[str] = ()) -> list[Message]:
    """Shorten the head and repair the view for sending; `addresses` are those of the messages in the log."""
    return rules.repair(shorten_head(messages, head_tokens=head_tokens, addresses=addresses))


def shorten_head(messages: Sequence[Message], *, head_tokens: int, addresses: Sequence[str] = ()) -> list[Message]:
    """Shorten the messages before the handoff to `head_tokens`; a view without a handoff is unchanged."""
    end = next((i for i, m in enumerate(messages) if m.kind == "handoff"), 0)
    start = min(rules.leading_system(messages), end)
    # A long result says less than the words around it.
    most = max(int(head_tokens * _RESULT_SHARE), _LEAST_SHOWN_TOKENS)
    sizes = [estimate_message(m) for m in messages[start:end]]
    limits = [most if m.role == "tool" else size for m, size in zip(messages[start:end], sizes, strict=True)]
    if sum(map(min, sizes, limits)) > head_tokens:
        share = _fair_share(list(map(min, sizes, limits)), head_tokens)
        limits = [min(limit, share) for limit in limits]
    if all(size <= limit for size, limit in zip(sizes, limits, strict=True)):
        return list(messages)
    head = [
        m if size <= limit else _shorten(m, limit, addresses[i] if i < len(addresses) else "")
        for i, (m, size, limit) in enumerate(zip(messages[start:end], sizes, limits, strict=True), start)
    ]
    return [*messages[:start], *head, *messages[end:]]


def _fair_share(sizes: Sequence[int], budget: int) -> int:
    """The largest share per message such that all fit; unused share of small ones goes to large ones."""
    remaining, share = budget, budget
    for n, size in enumerate(sorted(sizes)):
        share = remaining // (len(sizes) - n)
        if size > share:
            break
        remaining -= size
    return max(share, _LEAST_SHOWN_TOKENS)


def _shorten(message: Message, tokens: int, address: str) -> Message:
    """Keep the best of a result that is prose, and both ends of any other text, with the address of the rest."""
    # Imported late: only a compacted conversation needs them, and they bring the whole fact scanner.
    from perdure.context.record.pages import excerpt
    from perdure.context.transcript import short_arguments, without_images

    message = without_images(short_arguments(message))
    text = message.text
    marker = f"[… {{}} characters left out{f'; open {address} with session_search' if address else ''} …]"
    room = max(tokens - estimate_text(marker) - 16, _LEAST_SHOWN_TOKENS // 2)
    if estimate_text(text) <= room:
        return message
    keep = max(40, int(len(text) * room / max(1, estimate_text(text))))
    if message.role == "tool" and (best := excerpt(text, keep)):
        short = f"{best}\n{marker.format(f'excerpts; {len(text) - len(best):,}')}"
    else:
        short = f"{text[: keep * 2 // 3]}\n{marker.format(f'{len(text) - keep:,}')}\n{text[len(text) - keep // 3 :]}"
    content: str | tuple[TextPart, ...] = short if isinstance(message.content, str) else (TextPart(short),)
    return message.with_content(content)
