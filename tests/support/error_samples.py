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
_VLLM = (
    "This model's maximum context length is {n} tokens. However, you requested {m} output tokens and your prompt "
    "contains {least}{p} input tokens, for a total of {least}{t} tokens. Please reduce the length of the input prompt or "
    "the number of requested output tokens."
)
_TOGETHER = (
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4097. Given: {p} `inputs` tokens and 4096 "
    "`max_new_tokens`"
)
_TOO_LONG = "prompt_too_long"

# Every sample of the reference page.
REFERENCE: tuple[Sample, ...] = (
    Sample(
        "OpenAI messages", 400,
        openai("This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens. "
               "Please reduce the length of the messages.", **_OVERFLOW), _TOO_LONG, 8192),
    Sample(
        "OpenAI functions", 400,
        openai("This model's maximum context length is 128000 tokens. However, your messages resulted in 202868 tokens "
               "(202767 in the messages, 101 in the functions). Please reduce the length of the messages or functions.",
               **_OVERFLOW), _TOO_LONG, 128000),
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
        _TOO_LONG),
    Sample(
        "Responses body", 400,
        openai("Your input exceeds the context window of this model. Please adjust your input and try again.",
               param="input", code="context_length_exceeded"), _TOO_LONG),
    Sample("Responses pairing", 400, openai("No tool output found for function call call_X."), "bad_request"),
    Sample(
        "Responses reasoning", 400,
        openai("Item 'rs_1' of type 'reasoning' was provided without its required following item."), "bad_request"),
    Sample("Anthropic", 400, anthropic("prompt is too long: 208310 tokens > 200000 maximum"), _TOO_LONG, 200000),
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
               "Please reduce the length of the messages.", code="context_length_exceeded"), _TOO_LONG, 272000),
    Sample(
        "OpenRouter", 400,
        {"error": {"code": 400, "message":
            "This endpoint's maximum context length is 131072 tokens. However, you requested about 141607 tokens (10535 "
            'of text input, 131072 in the output). Please reduce the length of either one, or use the "middle-out" '
            "transform to compress your prompt automatically."}}, "output_cap", 131072, 120537),
    Sample("vLLM output", 400, openai(_VLLM.format(n=32768, m=8192, p=28000, t=36192, least="")), "output_cap", 32768, 4768),
    Sample("vLLM prompt", 400, openai(_VLLM.format(n=32768, m=1, p=32769, t=32770, least="at least ")), _TOO_LONG, 32768),
    Sample(
        "llama.cpp", 400,
        {"error": {"code": 400, "message": "request (6031 tokens) exceeds the available context size (2048 tokens), try "
                   "increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 6031, "n_ctx": 2048}},
        _TOO_LONG, 2048),
    Sample(
        "Ollama", 400,
        {"error": "the prompt is longer than the context length currently available to the model; increase num_ctx"},
        _TOO_LONG),
    Sample("LM Studio", 400, {"error": _LM_STUDIO}, _TOO_LONG, 32768),
    Sample(
        "LM Studio keep", 400,
        {"error": "The number of tokens to keep from the initial prompt is greater than the context length."}, _TOO_LONG),
    Sample("Bedrock", 400, {"message": "Input is too long for requested model."}, _TOO_LONG),
    Sample(
        "Bedrock Claude", 400,
        {"__type": "ValidationException", "message": "The model returned the following errors: prompt is too long: 200049 "
         "tokens > 200000 maximum"}, _TOO_LONG, 200000),
    Sample(
        "Bedrock cap", 400,
        {"message": "The maximum tokens you requested exceeds the model limit of 2048. Try again with a maximum tokens "
         "value that is lower than 2048."}, "output_cap", None, 2048),
    Sample(
        "Gemini", 400,
        [{"error": {"code": 400, "message": "The input token count (132478) exceeds the maximum number of tokens allowed "
                    "(131072).", "status": "INVALID_ARGUMENT"}}], _TOO_LONG, 131072),
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
        _TOO_LONG, 983616),
    Sample(
        "DashScope cap", 400,
        openai("<400> InternalError.Algo.InvalidParameter: Range of max_tokens should be [1, 8192]"),
        "output_cap", None, 8192),
    Sample(
        "Groq", 400, openai("Please reduce the length of the messages or completion.", **_OVERFLOW), _TOO_LONG),
    Sample(
        "Groq cap", 400,
        openai("`max_completion_tokens` must be less than or equal to `8192`, the maximum value for "
               "`max_completion_tokens` is less than the `context_window` for this model"), "output_cap", None, 8192),
    Sample("Together prompt", 422, openai(_TOGETHER.format(p=80125)), _TOO_LONG, 4097),
    Sample("Together output", 422, openai(_TOGETHER.format(p=1000)), "output_cap", 4097, 3097),
    Sample("proxy 413", 413, "<html><head><title>413 Request Entity Too Large</title></head></html>", _TOO_LONG),
    Sample("proxy 413, no body", 413, None, _TOO_LONG),
    Sample("bare 400", 400, "", _TOO_LONG, request_tokens=180_000),
)  # fmt: skip

# Further wordings, wrappers and traps of our own gathering.
VARIANTS: tuple[Sample, ...] = (
    Sample("OpenAI legacy", 400, openai(
        "This model's maximum context length is 4097 tokens, however you requested 4116 tokens (1044 in your prompt; 3072 "
        "for the completion). Please reduce your prompt; or completion length."), "output_cap", 4097, 3053),
    Sample("OpenAI legacy prompt", 400, openai(
        "This model's maximum context length is 8191 tokens, however you requested 8238 tokens (8238 in your prompt; 0 for "
        "the completion). Please reduce your prompt; or completion length."), _TOO_LONG, 8191),
    Sample("OpenAI functions and output", 400, openai(
        "This model's maximum context length is 16385 tokens. However, you requested 17000 tokens (12000 in the messages, "
        "1000 in the functions, and 4000 in the completion)."), "output_cap", 16385, 3385),
    Sample("OpenAI cap, newer", 400, openai(
        "Invalid 'max_tokens': integer above maximum value. Expected a value <= 16384, but got 32000 instead.",
        code="integer_above_max_value", param="max_tokens"), "output_cap", None, 16384),
    Sample("OpenAI long string", 400, openai(
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760, but got a string "
        "with length 12582912 instead.", code="string_above_max_length"), _TOO_LONG),
    Sample("OpenAI long id is no overflow", 400, openai(
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a "
        "string with length 64 instead.", code="string_above_max_length"), "bad_request"),
    Sample("OpenAI long description is no overflow", 400, openai(
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a "
        "string with length 1500 instead.", code="string_above_max_length"), "bad_request"),
    Sample("OpenAI TPM", 429, openai(
        "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 342389. The "
        "input or output tokens must be reduced in order to run successfully.", type="tokens",
        code="rate_limit_exceeded"), "rate_limit"),
    Sample("Groq TPM", 413, openai(
        "Request too large for model `llama-3.1-8b-instant` in organization `org_x` service tier `on_demand` on tokens per "
        "minute (TPM): Limit 6000, Requested 12328, please reduce your message size and try again. Need more tokens? "
        "Upgrade to Dev Tier today at https://console.groq.com/settings/billing", type="tokens",
        code="rate_limit_exceeded"), "rate_limit"),
    Sample("Anthropic token rate", 429, anthropic(
        "This request would exceed your organization's rate limit of 40,000 input tokens per minute. For details, refer to "
        "the documentation. Please reduce the prompt length or the maximum tokens requested, or try again later.",
        "rate_limit_error"), "rate_limit"),
    Sample("Bedrock token rate", 429, {"message": "Too many tokens, please wait before trying again."}, "rate_limit"),
    Sample("Azure token rate", 429, {"error": {"code": "429", "message":
        "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-02-01 have exceeded token "
        "rate limit of your current OpenAI S0 pricing tier. Please retry after 86 seconds."}}, "rate_limit"),
    Sample("Cohere token rate", 429,
           {"message": "trial token rate limit exceeded, limit is 100000 tokens per minute"}, "rate_limit"),
    Sample("DashScope quota per minute", 429, {"code": "Throttling.AllocationQuota", "message":
        "Allocated quota exceeded, please increase your quota limit."}, "rate_limit"),
    Sample("Gemini per minute", 429, [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message":
        "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: "
        "generativelanguage.googleapis.com/generate_content_free_tier_input_token_count, limit: 250000\nPlease retry in "
        "38.2s.", "details": [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "38s"}]}}], "rate_limit"),
    Sample("Gemini per day", 429, [{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message":
        "You exceeded your current quota, please check your plan and billing details.", "details": [{"violations": [
            {"quotaId": "GenerateRequestsPerDayPerProjectPerModel-FreeTier"}]}]}}], "quota"),
    Sample("Vertex per minute", 429, {"error": {"code": 429, "message":
        "Quota exceeded for aiplatform.googleapis.com/generate_content_requests_per_minute_per_project_per_base_model with "
        "base model: gemini-pro."}}, "rate_limit"),
    Sample("OpenAI quota", 429, openai(
        "You exceeded your current quota, please check your plan and billing details. For more information on this error, "
        "read the docs.", type="insufficient_quota", code="insufficient_quota"), "quota"),
    Sample("OpenRouter credits", 402, {"error": {"code": 402, "message":
        "This request requires more credits, or fewer max_tokens. You requested up to 32000 tokens, but can only afford "
        "1520."}}, "quota"),
    Sample("DeepSeek balance", 402, openai("Insufficient Balance", type="unknown_error"), "quota"),
    Sample("Anthropic balance", 400, anthropic(
        "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase "
        "credits."), "quota"),
    Sample("Anthropic usage limits", 400, anthropic(
        "You have reached your specified API usage limits. You will regain access on 2026-12-01 at 00:00 UTC."), "quota"),
    Sample("Hugging Face credits", 402, {"error":
        "You have exceeded your monthly included credits for Inference Providers."}, "quota"),
    Sample("Moonshot quota", 429, {"error": {"type": "exceeded_current_quota_error", "message":
        "Your account is suspended, please check your plan and billing details"}}, "quota"),
    Sample("Zhipu balance", 429, {"error": {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}}, "quota"),
    Sample("DashScope arrears", 400, {"code": "Arrearage", "message":
        "Access denied, please make sure your account is in good standing."}, "quota"),
    Sample("OpenRouter wrapped JSON", 400, {"error": {"code": 400, "message": "Provider returned error", "metadata": {
        "raw": anthropic("prompt is too long: 213462 tokens > 200000 maximum"), "provider_name": "Anthropic"}}},
        _TOO_LONG, 200000),
    Sample("OpenRouter wrapped rate limit", 429, {"error": {"code": 429, "message": "Provider returned error", "metadata": {
        "raw": "google/gemini-2.5-pro is temporarily rate-limited upstream. Please retry shortly."}}}, "rate_limit"),
    Sample("LiteLLM", 400, {"error": {"code": "400", "type": None, "message":
        "litellm.ContextWindowExceededError: litellm.BadRequestError: AnthropicException - b'{\"type\":\"error\",\"error\":"
        "{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 205000 tokens > 200000 maximum\"}}'"}},
        _TOO_LONG, 200000),
    Sample("LiteLLM over 503", 503, {"error": {"message":
        "litellm.ServiceUnavailableError: litellm.MidStreamFallbackError: OpenAIException - Requested token count exceeds "
        "the model's maximum context length of 131072 tokens."}}, _TOO_LONG, 131072),
    Sample("SGLang", 400, {"object": "error", "type": "BadRequestError", "code": 400, "message":
        "The input (61709 tokens) is longer than the model's context length (40960 tokens)."}, _TOO_LONG, 40960),
    Sample("SGLang sum", 400, {"object": "error", "message":
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 70000 "
        "tokens: 6000 tokens from the input messages and 64000 tokens for the completion."}, "output_cap", 32768, 26768),
    Sample("xAI", 400, {"code": "Client specified an invalid argument", "error":
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}, _TOO_LONG, 131072),
    Sample("Mistral", 400, {"object": "error", "type": "invalid_request_prompt", "message":
        "Prompt contains 1000172 tokens and 0 draft tokens, too large for model with 40960 maximum context length"},
        _TOO_LONG, 40960),
    Sample("Cohere", 400, {"message":
        "too many tokens: size limit exceeded by 168512 tokens. The limit for this model is 132000 tokens."},
        _TOO_LONG, 132000),
    Sample("Cohere cap", 400, {"message":
        "too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model - received "
        "8192."}, "output_cap", None, 4096),
    Sample("Fireworks", 400, openai(
        "The prompt is too long: 1000008, model maximum context length: 131071"), _TOO_LONG, 131071),
    Sample("Copilot", 400, {"error": {"message": "prompt token count of 146270 exceeds the limit of 128000", "code":
        "model_max_prompt_tokens_exceeded"}}, _TOO_LONG, 128000),
    Sample("Kimi", 400, openai("Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"),
           _TOO_LONG, 262144),
    Sample("Kimi, our prompt is small", 400, openai(
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"),
        "output_cap", 262144, 252144, 10_000),
    Sample("MiniMax", 400, {"type": "error", "error": {"type": "bad_request_error", "message":
        "invalid params, context window exceeds limit (2013)"}}, _TOO_LONG),
    Sample("MiniMax base_resp", None, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "quota"),
    Sample("Zhipu", 400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, _TOO_LONG),
    Sample("Cerebras", 400, openai("Please reduce the length of the messages or completion. Current length is 12087 while "
                                   "limit is 8192", code="context_length_exceeded"), _TOO_LONG, 8192),
    Sample("SambaNova", 400, openai(
        "Requested generation length 20480 is not possible! The provided prompt is 5100 tokens long, so generating 20480 "
        "tokens requires a sequence length of 25580, but the maximum supported sequence length is just 16384."),
        "output_cap", 16384, 11284),
    Sample("TGI", 422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5187",
                        "error_type": "validation"}, _TOO_LONG, 4096),
    Sample("NIM", 400, openai("Prompt length (8500) exceeds maximum input length (8192)."), _TOO_LONG, 8192),
    Sample("Vertex", 400, {"error": {"code": 400, "message":
        "Unable to submit request because the input token count is 1098393 but model only supports up to 1048576. Reduce "
        "the input token count and try again."}}, _TOO_LONG, 1048576),
    Sample("Gemini, grouped digits", 400, {"error": {"message":
        "The input token count (1,196,265) exceeds the maximum number of tokens allowed (1,048,576)."}},
        _TOO_LONG, 1048576),
    Sample("Gemini, no count", 400, {"error": {"message":
        "The input token count exceeds the maximum number of tokens allowed 1048576."}}, _TOO_LONG, 1048576),
    Sample("Vertex cap", 400, {"error": {"message":
        "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 "
        "(inclusive) to 65537 (exclusive). Update the value and try again."}}, "output_cap", None, 65536),
    Sample("Bedrock Nova", 400, {"message":
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again."},
        _TOO_LONG),
    Sample("Bedrock Nova cap", 400, {"message":
        "Value '10000' at 'inferenceConfig.maxTokens' failed to satisfy constraint: Member must have value less than or "
        "equal to 5120"}, "output_cap", None, 5120),
    Sample("vLLM 0.10", 400, {"object": "error", "message":
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens "
        "and your request has 1500 input tokens (32000 > 32768 - 1500)."}, "output_cap", 32768, 31268),
    Sample("vLLM, prompt only", 400, {"object": "error", "message":
        "This model's maximum context length is 262144 tokens. However, your request has 1000010 input tokens. Please "
        "reduce the length of the input messages."}, _TOO_LONG, 262144),
    Sample("vLLM, counting stopped", 400, openai(_VLLM.format(n=32768, m=8192, p=24577, t=32769, least="at least ")),
           _TOO_LONG, 32768, None, 90_000),
    Sample("vLLM engine", 400, {"error": {"code": 400, "message":
        "The decoder prompt (length 163840) is longer than the maximum model length of 131072. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens plus multimodal tokens."}}, _TOO_LONG, 131072),
    Sample("vLLM, negative room", 400, {"object": "error", "message": "max_tokens must be at least 1, got -1357."},
           _TOO_LONG),
    Sample("llama-cpp-python", 400, openai("Requested tokens (5083) exceed context window of 4096"), _TOO_LONG, 4096),
    Sample("llama.cpp, older", 500, {"error": {"code": 500, "type": "server_error", "message":
        "the request exceeds the available context size. try increasing the context size or enable context shift"}},
        _TOO_LONG),
    Sample("Ollama, newer", 400, {"error": "prompt too long; exceeded max context length by 4 tokens"}, _TOO_LONG),
    Sample("Cloudflare", 400, {"errors": [{"code": 5021, "message":
        "AiError: The estimated number of input and maximum output tokens (134028) exceeded this model context window "
        "limit (131072)."}]}, "output_cap", 131072),
    Sample("SiliconFlow", 400, {"code": 20015, "message":
        "length of prompt_tokens (35206) must be less than max_seq_len (32768)."}, _TOO_LONG, 32768),
    Sample("watsonx", 400, {"errors": [{"code": "invalid_input_argument", "message":
        "the number of input tokens 20346 cannot exceed the total tokens limit 8192 for this model"}]}, _TOO_LONG, 8192),
    Sample("gRPC", 400, "Sent message larger than max (50000056 vs. 20971520)", _TOO_LONG),
    Sample("Chinese", 400, {"error": {"message": "输入内容长度超过模型最大上下文限制"}}, _TOO_LONG),
    Sample("truncated JSON", 400, '{"error":{"message":"This model\'s maximum context length is 8192 tokens. However, yo',
           _TOO_LONG, 8192),
    Sample("error inside a stream", None, 'data: {"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}\n\n',
           _TOO_LONG, 8),
    Sample("Python repr", 400, "Error code: 400 - {'error': {'message': 'prompt token count of 65446 exceeds the limit of "
           "64000', 'code': ''}}", _TOO_LONG, 64000),
    Sample("stop reason", 200, {"type": "message", "stop_reason": "model_context_window_exceeded"}, _TOO_LONG),
    Sample("bare 400, small request", 400, "", "bad_request", request_tokens=900),
    Sample("bare 400, size unknown", 400, None, "bad_request"),
    Sample("bare 400 in words", 400, '{"error":{"message":"Bad Request","code":400}}', _TOO_LONG, request_tokens=400_000),
    Sample("a reasoned 400 after a huge request", 400, openai("Unknown parameter: 'foo'."), "bad_request",
           request_tokens=400_000),
    Sample("Go's context is not ours", 504, "context deadline exceeded", "transport"),
    Sample("Go's context is not ours, 500", 500, {"error": "rpc error: context canceled"}, "overloaded"),
    Sample("a tool's context is not ours", 400, openai("tool 'diff' failed: context lines must be positive"),
           "bad_request"),
    Sample("echoed conversation", 422, {"detail": [{"type": "missing", "loc": ["body", "model"], "msg": "Field required",
           "input": {"messages": [{"role": "user", "content": "why: prompt is too long: 9 tokens > 8 maximum?"}]}}]},
           "bad_request"),
    Sample("image size is no overflow", 400, anthropic(
        "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum: 6291456 bytes > 5242880 bytes"),
        "bad_request"),
    Sample("thinking budget is no cap", 400, anthropic("`max_tokens` must be greater than `thinking.budget_tokens`."),
           "bad_request"),
    Sample("401", 401, openai("Incorrect API key provided: sk-abc***xyz.", code="invalid_api_key"), "auth"),
    Sample("OpenRouter 401", 401, {"error": {"message": "User not found.", "code": 401}}, "auth"),
    Sample("Gemini bad key", 400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message":
        "API key not valid. Please pass a valid API key."}}], "auth"),
    Sample("Cloudflare 403", 403, "<!DOCTYPE html><html><title>Just a moment...</title></html>", "auth"),
    Sample("Anthropic overloaded", 529, anthropic("Overloaded", "overloaded_error"), "overloaded"),
    Sample("Anthropic overloaded in stream", None, anthropic("Overloaded", "overloaded_error"), "overloaded"),
    Sample("Anthropic server error", 500, anthropic("Internal server error", "api_error"), "overloaded"),
    Sample("nginx 502", 502, "<html>\r\n<head><title>502 Bad Gateway</title></head>\r\n</html>", "transport"),
    Sample("Cloudflare 524", 524, "<!DOCTYPE html><title>A timeout occurred</title>", "transport"),
    Sample("timeout", None, TimeoutError("timed out"), "transport"),
    Sample("reset", None, ConnectionResetError(104, "Connection reset by peer"), "transport"),
    Sample("nothing at all", None, None, "transport"),
    Sample("404", 404, openai("The model `gpt-9` does not exist or you do not have access to it."), "bad_request"),
    Sample("page instead of an API", 200, "<html><title>Welcome</title></html>", "transport"),
)  # fmt: skip

# Rate-limit texts, for fuzzing: however they are cut or scrambled, they are never an overflow.
RATE_LIMITS: tuple[Sample, ...] = tuple(s for s in VARIANTS if s.kind == "rate_limit")
