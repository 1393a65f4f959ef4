"""What to do about a failed call: one table from verdict to action, nothing else decides.

A call has at most three compactions and three lowered output caps; rerouting (a fresh key, then the next provider) goes
on until the route is used up. A request that a compaction left as it was is not sent again. What is left over ends the
turn with advice; the history is intact either way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from perdure.core.errors import ErrorKind, ErrorVerdict

Action = Literal["compact", "lower_output", "drop_images", "reroute", "give_up"]

# Fixed: three passes that did not help will not help a fourth time.
MAX_COMPACTIONS = 3
MAX_LOWERED = 3
LEAST_OUTPUT_TOKENS = 16

# What is tried for each kind, first to last; an action that is used up or impossible is passed over.
TABLE: dict[ErrorKind, tuple[Action, ...]] = {
    "prompt_too_long": ("compact",),
    "output_cap": ("lower_output", "compact"),
    "rate_limit": ("reroute",),
    "overloaded": ("reroute",),
    "auth": ("reroute",),
    "quota": ("reroute",),
    "transport": ("reroute",),
    "unknown": ("reroute",),
    # Only where it states how many images it takes: any other malformed request stays malformed.
    "bad_request": ("drop_images",),
}

# What is said behind the service's own words, which name the key, the address or the model to check.
ADVICE: dict[ErrorKind, str] = {
    "prompt_too_long": "The conversation does not fit the model's window. Start afresh with /new, "
    "compact around one topic with /compress TOPIC, or choose a model with a larger window with /model.",
    "output_cap": "The service refuses the output allowance. Lower model.max_tokens.",
    "rate_limit": "Try again in a while, or add fallback_providers.",
    "overloaded": "Try again in a while, or add fallback_providers.",
    "auth": "A key that expires can be fetched anew by credentials.command.",
    "quota": "With fallback_providers set, another service would go on from here.",
    "transport": "Try again in a while; with fallback_providers set, another service would go on from here.",
    "unknown": "The service failed in a way Perdure does not know. Try again.",
    "bad_request": "It would be refused again as it is: change what it names, or choose another model with /model.",
}

TOO_MANY_IMAGES = (
    "Send fewer images with one message, compact the conversation with /compress, or choose another model with /model."
)


@dataclass(slots=True)
class Attempts:
    """What has been tried for one call already."""

    compactions: int = 0
    lowered: int = 0
    has_dropped_images: bool = False
    # The output allowance this call was lowered to; None: it goes out as configured.
    output_tokens: int | None = None
    # It was lowered because the endpoint takes no more, whatever the prompt: worth remembering once it is accepted.
    has_found_cap: bool = False
    is_route_used_up: bool = False
    # The last compaction left the request as it was: sent again it would be refused again.
    is_nothing_left: bool = False

    def next_action(self, verdict: ErrorVerdict, *, may_compact: bool) -> Action:
        """The next thing to try, counted as tried; "give_up" when nothing is left."""
        for action in TABLE[verdict.kind]:
            if action == "compact" and may_compact and not self.is_nothing_left and self.count_compaction():
                return action
            if action == "lower_output" and self.lowered < MAX_LOWERED:
                self.lowered += 1
                return action
            if action == "drop_images" and verdict.image_limit and not self.has_dropped_images:
                self.has_dropped_images = True
                return action
            if action == "reroute" and not self.is_route_used_up:
                return action
        return "give_up"

    def count_compaction(self) -> bool:
        """Takes one of the call's compactions; False when they are used up."""
        if self.compactions >= MAX_COMPACTIONS:
            return False
        self.compactions += 1
        return True

    def lower_output(self, verdict: ErrorVerdict, asked_tokens: int | None) -> None:
        """Sets the allowance to try next."""
        self.output_tokens = lowered_output(verdict, asked_tokens)
        # With a window or a rate limit stated, the allowance follows from this prompt and holds for no other.
        self.has_found_cap = verdict.context_limit is None and verdict.request_limit is None

    def forget_output(self) -> None:
        """Another endpoint has another cap."""
        self.output_tokens, self.has_found_cap = None, False


def lowered_output(verdict: ErrorVerdict, asked_tokens: int | None) -> int:
    """The output allowance to try next: what the service stated, else half of what was asked for."""
    if verdict.output_limit and verdict.output_limit > 0 and verdict.output_limit != asked_tokens:
        return max(LEAST_OUTPUT_TOKENS, verdict.output_limit)
    return max(LEAST_OUTPUT_TOKENS, (asked_tokens or 8_192) // 2)


def advice(verdict: ErrorVerdict, attempts: Attempts) -> str:
    """What the person reads when nothing helped: what happened, what was tried, what to do."""
    tried, count = "", attempts.compactions
    if attempts.is_nothing_left:
        tried = " Nothing more could be compacted."
    elif count:
        tried = f" Compacted {count} time{'s' if count > 1 else ''} without success."
    said = verdict.message.strip().rstrip(".")
    what_next = TOO_MANY_IMAGES if verdict.image_limit is not None else ADVICE[verdict.kind]
    return f"{said or 'The call failed'}.{tried} {what_next} Nothing of the conversation is lost."
