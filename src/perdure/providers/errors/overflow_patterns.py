"""Error messages for requests that are too long: one row per wording, each with a real sample.

`kind`: "prompt" the prompt alone does not fit; "cap" max_tokens exceeds the output limit; "sum" prompt and output
together do not fit, so the numbers decide; "total" a sum was counted, but the prompt is the likelier cause.
Groups: `window` the context window, `prompt` the prompt tokens, `output` the requested output, `cap` the output limit,
`below` one more than that, `parts` a breakdown to add up, `least` a prompt counted only up to the limit.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LimitRow:
    kind: Literal["prompt", "cap", "sum", "total"]
    pattern: re.Pattern[str]
    service: str
    sample: str
    status: int = 400


def _row(kind: Literal["prompt", "cap", "sum", "total"], pattern: str, service: str, sample: str) -> LimitRow:
    return LimitRow(kind, re.compile(pattern, re.IGNORECASE), service, sample)


_Q = r"[`'\"´]?"
_MAX = r"max[_ ]?(?:completion|output|new)?[_ ]?tokens"

SUM_ROWS: tuple[LimitRow, ...] = (
    _row(
        "sum",
        r"maximum context length is (?P<window>\d+) tokens?.{0,60}?requested (?:about |at least )?\d+ tokens?[ "
        r",:(]{1,3}"
        r"(?P<parts>\d[^()]{1,200}?(?:completion|output|response|functions|tools))\b",
        "OpenAI, DeepSeek, OpenRouter, older vLLM",
        "This model's maximum context length is 4097 tokens. However, you requested 4120 tokens (3120 in the "
        "messages, 1000 in the completion). Please reduce the length of the messages or completion.",
    ),
    _row(
        "sum",
        r"maximum context length is (?P<window>\d+) tokens?.{0,60}?requested (?P<output>\d+) output tokens? and your "
        r"prompt contains (?P<least>at least )?(?P<prompt>\d+) (?:input )?tokens?",
        "vLLM",
        "This model's maximum context length is 32768 tokens. However, you requested 8192 output tokens and your "
        "prompt contains 28000 input tokens, for a total of 36192 tokens. Please reduce the length of the input "
        "prompt or the number of requested output tokens.",
    ),
    _row(
        "sum",
        rf"{_MAX}{_Q} is too large: (?P<output>\d+).{{0,20}}?maximum context length is (?P<window>\d+) tokens? and "
        r"your request has (?P<prompt>\d+) input tokens?",
        "vLLM 0.10",
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 "
        "tokens and your request has 1500 input tokens (32000 > 32768 - 1500).",
    ),
    _row(
        "sum",
        r"passed (?P<prompt>\d+) input tokens? and requested (?P<output>\d+) output tokens?.{0,60}?context length is "
        r"only (?P<window>\d+) tokens?",
        "vLLM, newest",
        "You passed 30000 input tokens and requested 4096 output tokens. However, the model's context length is only "
        "32768 tokens, resulting in a maximum input length of 28672 tokens. Please reduce the length of the input "
        "prompt. (parameter=input_tokens, value=30000)",
    ),
    _row(
        "sum",
        rf"input length and {_Q}max_tokens{_Q} exceed context limit:? ?\(?(?:i\.?e\.?:? )?(?P<prompt>\d+) \+ "
        r"(?P<output>\d+) > (?P<window>\d+)",
        "Anthropic",
        "input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or "
        "`max_tokens` and try again",
    ),
    _row(
        "sum",
        rf"inputs?{_Q} tokens? \+ {_Q}max_new_tokens{_Q} must be <= (?P<window>\d+)\.? given:? (?P<prompt>\d+) "
        rf"{_Q}inputs?{_Q} tokens? and (?P<output>\d+)",
        "Together, TGI",
        "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: 3900 `inputs` tokens and "
        "4096 `max_new_tokens`",
    ),
    _row(
        "sum",
        r"maximum context length of (?P<window>\d+) tokens?.{0,40}?total of \d+ tokens?:? (?P<prompt>\d+) tokens? from "
        r"the input(?: messages)? and (?P<output>\d+) tokens? for the completion",
        "SGLang",
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of "
        "36000 tokens: 20000 tokens from the input messages and 16000 tokens for the completion. Please reduce the "
        "number of tokens in the input messages or the completion to fit within the limit.",
    ),
    _row(
        "sum",
        r"generation length (?P<output>\d+) is not possible.{0,20}?prompt is (?P<prompt>\d+) tokens? long.{0,140}?"
        r"maximum supported sequence length is (?:just )?(?P<window>\d+)",
        "SambaNova",
        "Requested generation length 20480 is not possible! The provided prompt is 5100 tokens long, so generating "
        "20480 tokens requires a sequence length of 25580, but the maximum supported sequence length is just 16384.",
    ),
    _row(
        "sum",
        r"sum of prompt length \((?P<prompt>\d+)(?:\.0)?\).{0,60}?max_tokens \((?P<output>\d+)(?:\.0)?\) should not "
        r"exceed [a-z_ ]{1,40}\((?P<window>\d+)\)",
        "TensorRT-LLM, NIM",
        "The sum of prompt length (1111.0), query length (0) max_tokens (32768) should not exceed max_seq_len (16384)",
    ),
    _row(
        "sum",
        r"number of input and maximum output tokens \(\d+\) exceeded this model context window limit "
        r"\((?P<window>\d+)\)",
        "Cloudflare Workers AI",
        "AiError: The estimated number of input and maximum output tokens (134028) exceeded this model context window "
        "limit (131072).",
    ),
    _row(
        "sum",
        r"(?:token|prompt|input|context)[^|]{0,80}?(?P<prompt>\d{2,9}) ?(?:(?:prompt|input) )?(?:tokens? )?\+ ?"
        r"(?P<output>\d{1,9}) ?(?:[a-z_]{1,20} ){0,3}>=? ?(?P<window>\d{3,9})",
        "servers that show their arithmetic",
        "prompt + max_tokens does not fit: 7000 + 2000 > 8192",
    ),
    _row(
        "sum",
        rf"(?:prompt|input)(?: tokens?)?:? \(?(?P<prompt>\d+)(?: tokens?)?\)? ?\+ ?(?:{_MAX}|completion|output)(?: "
        rf"tokens?)?"
        r":? \(?(?P<output>\d+)(?: tokens?)?\)?\D{1,40}?(?P<window>\d{3,9})",
        "servers that show their arithmetic",
        "prompt (5000 tokens) + completion (4000 tokens) exceeds context window 8192",
    ),
    _row(
        "sum",
        r"\((?P<prompt>\d+) (?:tokens? (?:in|from) (?:the )?)?(?:prompt|input|messages) ?(?:\+|and|,) ?(?P<output>\d+) "
        r"(?:tokens? (?:in|for) (?:the )?)?(?:completion|output|max_tokens)\)\D{1,60}?(?P<window>\d{3,9})",
        "servers that show their arithmetic",
        "Requested 9000 tokens (5000 prompt + 4000 completion) but context is 8192",
    ),
    _row(
        "total",
        r"exceeded model token limit:? ?(?P<window>\d+)",
        "Moonshot, Kimi",
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)",
    ),
    _row(
        "total",
        r"model max length exceeded,? max length: ?(?P<window>\d+)",
        "Moonshot, older",
        "model max length exceeded, max length:8192",
    ),
    _row(
        "total",
        r"reduce the length of the messages or completion.{0,10}?current length is \d+ while limit is (?P<window>\d+)",
        "Cerebras",
        "Please reduce the length of the messages or completion. Current length is 12087 while limit is 8192",
    ),
    _row(
        "sum",
        rf"(?:prompt|input)(?: tokens?)? (?:and|\+|plus) {_Q}(?:{_MAX}|output tokens?|prediction){_Q}.{{0,40}}?"
        r"(?:exceed|greater than|larger than|must be (?:<=?|less)).{0,50}?(?P<window>\d+)",
        "Novita and others",
        "the sum of prompt tokens and max_tokens exceeds the context window limit of 65536",
    ),
)

CAP_ROWS: tuple[LimitRow, ...] = (
    _row(
        "cap",
        rf"{_MAX}{_Q} is too large: \d+\.? this model supports at most (?P<cap>\d+)",
        "OpenAI",
        "max_tokens is too large: 20480. This model supports at most 16384 completion tokens, whereas you provided "
        "20480.",
    ),
    _row(
        "cap",
        rf"{_MAX}{_Q}.{{0,60}}?above maximum value\.? expected a value <= (?P<cap>\d+)",
        "OpenAI, Volcengine",
        "Invalid 'max_tokens': integer above maximum value. Expected a value <= 16384, but got 32000 instead.",
    ),
    _row(
        "cap",
        rf"{_MAX}{_Q}:? \d+ > (?P<cap>\d+),? which is the maximum allowed number of output tokens",
        "Anthropic",
        "max_tokens: 21333 > 4096, which is the maximum allowed number of output tokens for claude-3-opus-20240229",
    ),
    _row(
        "cap",
        r"maximum tokens you requested exceeds the model limit of (?P<cap>\d+)",
        "Bedrock",
        "The maximum tokens you requested exceeds the model limit of 2048. Try again with a maximum tokens value that "
        "is lower than 2048.",
    ),
    _row(
        "cap",
        rf"valid range of {_MAX}{_Q} (?:is|should be) \[\d+, ?(?P<cap>\d+)\]",
        "DeepSeek",
        "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]",
    ),
    _row(
        "cap",
        rf"range of {_MAX}{_Q} should be \[\d+, ?(?P<cap>\d+)\]",
        "DashScope",
        "<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]",
    ),
    _row(
        "cap",
        rf"{_MAX}{_Q}.{{0,80}}?less (?:than )?or equal to {_Q}(?P<cap>\d+)",
        "Groq, Bedrock Nova",
        "`max_completion_tokens` must be less than or equal to `8192`, the maximum value for "
        "`max_completion_tokens` is "
        "less than the `context_window` for this model",
    ),
    _row(
        "cap",
        r"maxOutputTokens value of \d+ but the supported range is from \d+ \(inclusive\) to (?P<below>\d+) "
        r"\(exclusive\)",
        "Gemini, Vertex",
        "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 "
        "(inclusive) to 65537 (exclusive). Update the value and try again.",
    ),
    _row(
        "cap",
        rf"{_MAX}{_Q}:? (?:value )?(?:must|should) be (?:in (?:the )?range |between |in |within )\D{{0,3}}\d+ ?"
        r"(?:,|and|to|-) ?(?P<cap>\d+)",
        "wordings of a range",
        "The value of max_tokens must be between 1 and 8192",
    ),
    _row(
        "cap",
        rf"{_MAX}{_Q} does not support \d+.{{0,40}}?maximum is (?P<cap>\d+)|(?:generate|produce|output) (?:at most|"
        rf"up to|a "
        r"maximum of) (?P<most>\d+) (?:output |completion |new )?tokens",
        "wordings of a maximum",
        "this model can generate at most 8192 output tokens, but 16000 were requested",
    ),
    _row(
        "cap",
        r"(?:completion|output|generated) tokens? (?:\(\d+\) )?(?:exceeds?|exceeded|is greater than|over)\b\D{0,40}"
        r"(?P<cap>\d+)",
        "wordings of a maximum",
        "Requested completion tokens (9000) exceed the limit of 4096",
    ),
    _row(
        "cap",
        rf"{_MAX}{_Q}.{{0,16}}?(?:限制|范围|取值|区间).{{0,12}}?[\[［【]\d+ ?[,，] ?(?P<cap>\d+)",
        "Zhipu",
        "max_tokens参数非法：限制 [1,4096]",
    ),
    _row(
        "cap",
        rf"{_MAX}{_Q}\)?:? (?:value )?(?:\(?{_Q}\d+{_Q}\)? )?(?:is |was )?"
        r"(?:too (?:large|high|big)(?:\D{0,10}\d*\D{0,10}maximum\D{0,40}?(?P<most>\d+))?|(?:must be <=?|"
        r"should be <=?|must be at most|must not exceed|cannot exceed|can ?not be greater than|must be less than|"
        r"should be less than|exceeds?|exceeded|larger than|greater than|above)(?:[^\d.]{0,60}?(?P<cap>\d+))?)",
        "TGI and others",
        "Input validation error: `max_new_tokens` must be <= 1512. Given: 4000",
    ),
)
