"""Limits on one request that say nothing about the model's window: how many images, how many tokens a rate tier takes.

`kind`: "images" the request holds more images (or documents) than the service takes; "tier" it is larger than the
account's rate limit allows for a whole minute, so that no wait helps and a smaller request does.
Groups: `most` what the service takes, `sent` what the request had.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

RequestKind = Literal["images", "tier"]


@dataclass(frozen=True, slots=True)
class RequestRow:
    kind: RequestKind
    pattern: re.Pattern[str]
    service: str
    sample: str
    status: int = 400


def _row(kind: RequestKind, pattern: str, service: str, sample: str, status: int = 400) -> RequestRow:
    return RequestRow(kind, re.compile(pattern, re.IGNORECASE), service, sample, status)


_MEDIA = r"(?:images?|image\(s\)|documents?|media|pictures?|attachments?)"

IMAGE_ROWS: tuple[RequestRow, ...] = (
    _row(
        "images",
        rf"too many {_MEDIA}[^:]{{0,30}}: ?\d+ \+ \d+ > (?P<most>\d+)",
        "Anthropic, Bedrock",
        "messages.22.content: too many images and documents: 104 + 1 > 100",
    ),
    _row(
        "images",
        r"too much media: \d+ document pages \+ \d+ images > (?P<most>\d+)",
        "Anthropic",
        "Too much media: 0 document pages + 107 images > 100",
    ),
    _row(
        "images",
        rf"at most (?P<most>\d+) {_MEDIA} may be provided",
        "vLLM",
        "At most 5 image(s) may be provided in one request.",
    ),
    _row(
        "images",
        rf"too many {_MEDIA}.{{0,60}}?(?:max(?:imum)?|up to|at most|limit)\D{{0,30}}?(?P<most>\d+)",
        "OpenAI, Azure, Copilot",
        "Too many images in request. Max is 50.",
    ),
    _row(
        "images",
        rf"\d+ {_MEDIA},? (?:which )?exceed(?:s|ing)? the (?:maximum|limit) of (?P<most>\d+)",
        "routers",
        "request contains 54 images, exceeding the maximum of 50 allowed per request",
    ),
    _row("images", rf"too many {_MEDIA}", "services that state no figure", "Too many images in the request"),
)

# Whether the request can ever fit is told by the two figures. With "Used 28911" between them it is a matter of waiting.
TIER_ROWS: tuple[RequestRow, ...] = (
    _row(
        "tier",
        r"token.{0,60}?limit:? (?P<most>\d+),? requested:? (?P<sent>\d+)",
        "Groq",
        "Request too large for model `llama-3.3-70b-versatile` in organization `org_x` service tier `on_demand` on "
        "tokens per minute (TPM): Limit 6000, Requested 14810, please reduce your message size and try again.",
        413,
    ),
    _row(
        "tier",
        r"token.{0,60}?limit:? (?P<most>\d+),? requested:? (?P<sent>\d+)",
        "OpenAI",
        "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 45000. The "
        "input or output tokens must be reduced in order to run successfully.",
        429,
    ),
)
