"""What services really print, gathered from public reports: (service, status, body, kind, context limit, output limit)."""
# ruff: noqa: E501  (samples are quoted as the services print them)

from __future__ import annotations

import json
from typing import Any, NamedTuple


class Sample(NamedTuple):
    service: str
    status: int | None
    body: Any
    kind: str
    context_limit: int | None = None
    output_limit: int | None = None
    request_tokens: int | None = None


def openai(message: str, **fields: Any) -> str:
    return json.dumps({"error": {"message": message, "type": "invalid_request_error", "param": None, **fields}})


def anthropic(message: str, kind: str = "invalid_request_error") -> str:
    return json.dumps({"type": "error", "error": {"type": kind, "message": message}, "request_id": "req_011CSHoEeqs"})


_OVERFLOW = {"param": "messages", "code": "context_length_exceeded"}
_LM_STUDIO = (
    "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context "
    "length of only 32768 tokens, which is not enough. Try to load the model with a larger context length."
)
VLLM = (
    "This model's maximum context length is {n} tokens. However, you requested {m} output tokens and your prompt "
    "contains {least}{p} input tokens, for a total of {least}{t} tokens. Please reduce the length of the input prompt or "
    "the number of requested output tokens."
)
_TOGETHER = (
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: {p} `inputs` tokens and 4096 "
    "`max_new_tokens`"
)
TOO_LONG = "prompt_too_long"

# Every sample of the reference page.
REFERENCE: tuple[Sample, ...] = (
    Sample(
        "OpenAI messages", 400,
        openai("This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens. "
               "Please reduce the length of the messages.", **_OVERFLOW), TOO_LONG, 8192),
    Sample(
        "OpenAI functions", 400,
        openai("This model's maximum context length is 128000 tokens. However, your messages resulted in 202868 tokens "
               "(202767 in the messages, 101 in the functions). Please reduce the length of the messages or functions.",
               **_OVERFLOW), TOO_LONG, 128000),
    Sample(
        "OpenAI output budget", 400,
        openai("This model's maximum context length is 4097 tokens. However, you requested 4120 tokens (3120 in the "
               "messages, 1000 in the completion). Please reduce the length of the messages or completion.",
               **_OVERFLOW), "output_cap", 4097, 977),
    Sample(
        "OpenAI cap", 400,
        openai("max_tokens is too large: 20480. This model supports at most 16384 completion tokens, whereas you "
               "provided 20480.", param="max_tokens", code="invalid_value"), "output_cap", None, 16384),
    Sample(
        "OpenAI tool pairing", 400,
        openai("An assistant message with 'tool_calls' must be followed by tool messages responding to each "
               "'tool_call_id'. The following tool_call_ids did not have response messages: call_X",
               param="messages.[6].role", code=None), "bad_request"),
    Sample(
        "Responses mid-stream", None,
        {"type": "response.failed", "response": {"error": {
            "code": "context_length_exceeded",
            "message": "Your input exceeds the context window of this model. Please adjust your input and try again."}}},
        TOO_LONG),
    Sample(
        "Responses body", 400,
        openai("Your input exceeds the context window of this model. Please adjust your input and try again.",
               param="input", code="context_length_exceeded"), TOO_LONG),
    Sample("Responses pairing", 400, openai("No tool output found for function call call_X."), "bad_request"),
    Sample(
        "Responses reasoning", 400,
        openai("Item 'rs_1' of type 'reasoning' was provided without its required following item."), "bad_request"),
    Sample("Anthropic", 400, anthropic("prompt is too long: 208310 tokens > 200000 maximum"), TOO_LONG, 200000),
    Sample(
        "Anthropic sum", 400,
        anthropic("input length and `max_tokens` exceed context limit: 199759 + 8192 > 200000, decrease input length or "
                  "`max_tokens` and try again"), "output_cap", 200000, 241),
    Sample(
        "Anthropic cap", 400,
        anthropic("max_tokens: 21333 > 4096, which is the maximum allowed number of output tokens for "
                  "claude-3-opus-20240229"), "output_cap", None, 4096),
    Sample("Anthropic marks", 400, anthropic("A maximum of 4 blocks with cache_control may be provided. Found 5."), "bad_request"),
    Sample(
        "Anthropic roles", 400,
        anthropic('messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a '
                  "row"), "bad_request"),
    Sample(
        "Anthropic thinking", 400,
        anthropic("messages.5.content.1: `thinking` or `redacted_thinking` blocks in the latest assistant message cannot "
                  "be modified. These blocks must remain as they were in the original response."), "bad_request"),
    Sample(
        "Azure", 400,
        openai("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens. "
               "Please reduce the length of the messages.", code="context_length_exceeded"), TOO_LONG, 272000),
    Sample(
        "OpenRouter", 400,
        {"error": {"code": 400, "message":
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 141607 tokens (10535 "
            'of text input, 131072 in the output). Please reduce the length of either one, or use the "middle-out" '
            "transform to compress your prompt automatically."}}, "output_cap", 131072, 120537),
    Sample("vLLM output", 400, openai(VLLM.format(n=32768, m=8192, p=28000, t=36192, least="")), "output_cap", 32768, 4768),
    Sample("vLLM prompt", 400, openai(VLLM.format(n=32768, m=1, p=32769, t=32770, least="at least ")), TOO_LONG, 32768),
    Sample(
        "llama.cpp", 400,
        {"error": {"code": 400, "message": "request (6031 tokens) exceeds the available context size (2048 tokens), try "
                   "increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 6031, "n_ctx": 2048}},
        TOO_LONG, 2048),
    Sample(
        "Ollama", 400,
        {"error": "the prompt is longer than the context length currently available to the model; increase num_ctx"},
        TOO_LONG),
    Sample("LM Studio", 400, {"error": _LM_STUDIO}, TOO_LONG, 32768),
    Sample(
        "LM Studio keep", 400,
        {"error": "The number of tokens to keep from the initial prompt is greater than the context length."}, TOO_LONG),
    Sample("Bedrock", 400, {"message": "Input is too long for requested model."}, TOO_LONG),
    Sample(
        "Bedrock Claude", 400,
        {"__type": "ValidationException", "message": "The model returned the following errors: prompt is too long: 200049 "
         "tokens > 200000 maximum"}, TOO_LONG, 200000),
    Sample(
        "Bedrock cap", 400,
        {"message": "The maximum tokens you requested exceeds the model limit of 2048. Try again with a maximum tokens "
         "value that is lower than 2048."}, "output_cap", None, 2048),
    Sample(
        "Gemini", 400,
        [{"error": {"code": 400, "message": "The input token count (132478) exceeds the maximum number of tokens allowed "
                    "(131072).", "status": "INVALID_ARGUMENT"}}], TOO_LONG, 131072),
    Sample(
        "DeepSeek", 400,
        openai("This model's maximum context length is 131072 tokens. However, you requested 131134 tokens (122942 in the "
               "messages, 8192 in the completion). Please reduce the length of the messages or completion.",
               code="invalid_request_error"), "output_cap", 131072, 8130),
    Sample(
        "DeepSeek cap", 400, openai("Invalid max_tokens value, the valid range of max_tokens is [1, 8192]"),
        "output_cap", None, 8192),
    Sample(
        "DashScope", 400,
        openai("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]"),
        TOO_LONG, 983616),
    Sample(
        "DashScope cap", 400,
        openai("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]"),
        "output_cap", None, 8192),
    Sample(
        "Groq", 400, openai("Please reduce the length of the messages or completion.", **_OVERFLOW), TOO_LONG),
    Sample(
        "Groq cap", 400,
        openai("`max_completion_tokens` must be less than or equal to `8192`, the maximum value for "
               "`max_completion_tokens` is less than the `context_window` for this model"), "output_cap", None, 8192),
    Sample("Together prompt", 422, openai(_TOGETHER.format(p=80125)), TOO_LONG, 4097),
    Sample("Together output", 422, openai(_TOGETHER.format(p=1000)), "output_cap", 4097, 3097),
    Sample("proxy 413", 413, "<html><head><title>413 Request Entity Too Large</title></head></html>", TOO_LONG),
    Sample("proxy 413, no body", 413, None, TOO_LONG),
    Sample("bare 400", 400, "", TOO_LONG, request_tokens=180_000),
)  # fmt: skip
