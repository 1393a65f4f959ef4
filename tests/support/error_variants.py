"""Wordings, wrappers and traps of our own gathering, beside the reference samples."""
# ruff: noqa: E501  (samples are quoted as the services print them)

from __future__ import annotations

from support.error_samples import TOO_LONG, VLLM, Sample, anthropic, openai

# Further wordings, wrappers and traps of our own gathering.
VARIANTS: tuple[Sample, ...] = (
    Sample("OpenAI legacy", 400, openai(
        "This model's maximum context length is 4097 tokens, however you requested 4116 tokens (1044 in your prompt; 3072 "
        "for the completion). Please reduce your prompt; or completion length."), "output_cap", 4097, 3053),
    Sample("OpenAI legacy prompt", 400, openai(
        "This model's maximum context length is 8191 tokens, however you requested 8238 tokens (8238 in your prompt; 0 for "
        "the completion). Please reduce your prompt; or completion length."), TOO_LONG, 8191),
    Sample("OpenAI functions and output", 400, openai(
        "This model's maximum context length is 16385 tokens. However, you requested 17000 tokens (12000 in the messages, "
        "1000 in the functions, and 4000 in the completion)."), "output_cap", 16385, 3385),
    Sample("OpenAI cap, newer", 400, openai(
        "Invalid 'max_tokens': integer above maximum value. Expected a value <= 16384, but got 32000 instead.",
        code="integer_above_max_value", param="max_tokens"), "output_cap", None, 16384),
    Sample("OpenAI long string", 400, openai(
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760, but got a string "
        "with length 12582912 instead.", code="string_above_max_length"), TOO_LONG),
    Sample("OpenAI long id is no overflow", 400, openai(
        "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length 40, but got a "
        "string with length 64 instead.", code="string_above_max_length"), "bad_request"),
    Sample("OpenAI long description is no overflow", 400, openai(
        "Invalid 'tools[0].function.description': string too long. Expected a string with maximum length 1024, but got a "
        "string with length 1500 instead.", code="string_above_max_length"), "bad_request"),
    Sample("OpenAI TPM", 429, openai(
        "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 342389. The "
        "input or output tokens must be reduced in order to run successfully.", type="tokens",
        code="rate_limit_exceeded"), TOO_LONG),
    Sample("OpenAI TPM, the minute is used up", 429, openai(
        "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Used 28911, Requested "
        "4093. Please try again in 6.008s.", type="tokens", code="rate_limit_exceeded"), "rate_limit"),
    Sample("OpenAI TPM, the output asked for is too large", 429, openai(
        "Request too large for gpt-4o in organization org-x on tokens per min (TPM): Limit 30000, Requested 33000. The "
        "input or output tokens must be reduced in order to run successfully.", type="tokens",
        code="rate_limit_exceeded"), "output_cap", None, 29000, 1000),
    Sample("Anthropic images", 400, anthropic("messages.22.content: too many images and documents: 104 + 1 > 100"),
           "bad_request"),
    Sample("Anthropic images, larger limit", 400, anthropic("too many images and documents: 601 + 0 > 600"), "bad_request"),
    Sample("Anthropic media", 400, anthropic("Too much media: 0 document pages + 107 images > 100"), "bad_request"),
    Sample("Anthropic image dimensions", 400, anthropic(
        "messages.19.content.27.image.source.base64.data: At least one of the image dimensions exceed max allowed size for "
        "many-image requests: 2000 pixels"), "bad_request"),
    Sample("Bedrock images", 400, {"__type": "ValidationException", "message":
           "The model returned the following errors: too many images and documents: 19 + 5 > 20"}, "bad_request"),
    Sample("Copilot images", 400, openai(
        "Too many images in request: 11 images provided, but the model supports a maximum of 10 images."), "bad_request"),
    Sample("arithmetic about something else", 400, "files: 4000 + 1000 > 4096", "bad_request"),
    Sample("llama.cpp shift", 500, {"error": {"code": 500, "message": "context shift is disabled", "type": "server_error"}},
           TOO_LONG),
    Sample("GitHub Models", 413, {"error": {"code": "tokens_limit_reached", "message":
           "Request body too large for gpt-4o model. Max size: 8000 tokens.",
           "details": "Request body too large for gpt-4o model. Max size: 8000 tokens."}}, TOO_LONG, 8000),
    Sample("Groq TPM", 413, openai(
        "Request too large for model `llama-3.1-8b-instant` in organization `org_x` service tier `on_demand` on tokens per "
        "minute (TPM): Limit 6000, Requested 12328, please reduce your message size and try again. Need more tokens? "
        "Upgrade to Dev Tier today at https://console.groq.com/settings/billing", type="tokens",
        code="rate_limit_exceeded"), TOO_LONG),
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
        TOO_LONG, 200000),
    Sample("OpenRouter wrapped rate limit", 429, {"error": {"code": 429, "message": "Provider returned error", "metadata": {
        "raw": "google/gemini-2.5-pro is temporarily rate-limited upstream. Please retry shortly."}}}, "rate_limit"),
    Sample("LiteLLM", 400, {"error": {"code": "400", "type": None, "message":
        "litellm.ContextWindowExceededError: litellm.BadRequestError: AnthropicException - b'{\"type\":\"error\",\"error\":"
        "{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long: 205000 tokens > 200000 maximum\"}}'"}},
        TOO_LONG, 200000),
    Sample("LiteLLM over 503", 503, {"error": {"message":
        "litellm.ServiceUnavailableError: litellm.MidStreamFallbackError: OpenAIException - Requested token count exceeds "
        "the model's maximum context length of 131072 tokens."}}, TOO_LONG, 131072),
    Sample("SGLang", 400, {"object": "error", "type": "BadRequestError", "code": 400, "message":
        "The input (61709 tokens) is longer than the model's context length (40960 tokens)."}, TOO_LONG, 40960),
    Sample("SGLang sum", 400, {"object": "error", "message":
        "Requested token count exceeds the model's maximum context length of 32768 tokens. You requested a total of 70000 "
        "tokens: 6000 tokens from the input messages and 64000 tokens for the completion."}, "output_cap", 32768, 26768),
    Sample("xAI", 400, {"code": "Client specified an invalid argument", "error":
        "This model's maximum prompt length is 131072 but the request contains 537812 tokens."}, TOO_LONG, 131072),
    Sample("Mistral", 400, {"object": "error", "type": "invalid_request_prompt", "message":
        "Prompt contains 1000172 tokens and 0 draft tokens, too large for model with 40960 maximum context length"},
        TOO_LONG, 40960),
    Sample("Cohere", 400, {"message":
        "too many tokens: size limit exceeded by 168512 tokens. The limit for this model is 132000 tokens."},
        TOO_LONG, 132000),
    Sample("Cohere cap", 400, {"message":
        "too many tokens: max tokens must be less than or equal to 4096, the maximum output for this model - received "
        "8192."}, "output_cap", None, 4096),
    Sample("Fireworks", 400, openai(
        "The prompt is too long: 1000008, model maximum context length: 131071"), TOO_LONG, 131071),
    Sample("Copilot", 400, {"error": {"message": "prompt token count of 146270 exceeds the limit of 128000", "code":
        "model_max_prompt_tokens_exceeded"}}, TOO_LONG, 128000),
    Sample("Kimi", 400, openai("Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"),
           TOO_LONG, 262144),
    Sample("Kimi, our prompt is small", 400, openai(
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 269030)"),
        "output_cap", 262144, 252144, 10_000),
    Sample("MiniMax", 400, {"type": "error", "error": {"type": "bad_request_error", "message":
        "invalid params, context window exceeds limit (2013)"}}, TOO_LONG),
    Sample("MiniMax base_resp", None, {"base_resp": {"status_code": 1008, "status_msg": "insufficient balance"}}, "quota"),
    Sample("Zhipu", 400, {"error": {"code": "1261", "message": "Prompt exceeds max length"}}, TOO_LONG),
    Sample("Cerebras", 400, openai("Please reduce the length of the messages or completion. Current length is 12087 while "
                                   "limit is 8192", code="context_length_exceeded"), TOO_LONG, 8192),
    Sample("SambaNova", 400, openai(
        "Requested generation length 20480 is not possible! The provided prompt is 5100 tokens long, so generating 20480 "
        "tokens requires a sequence length of 25580, but the maximum supported sequence length is just 16384."),
        "output_cap", 16384, 11284),
    Sample("TGI", 422, {"error": "Input validation error: `inputs` must have less than 4096 tokens. Given: 5187",
                        "error_type": "validation"}, TOO_LONG, 4096),
    Sample("NIM", 400, openai("Prompt length (8500) exceeds maximum input length (8192)."), TOO_LONG, 8192),
    Sample("Vertex", 400, {"error": {"code": 400, "message":
        "Unable to submit request because the input token count is 1098393 but model only supports up to 1048576. Reduce "
        "the input token count and try again."}}, TOO_LONG, 1048576),
    Sample("Gemini, grouped digits", 400, {"error": {"message":
        "The input token count (1,196,265) exceeds the maximum number of tokens allowed (1,048,576)."}},
        TOO_LONG, 1048576),
    Sample("Gemini, no count", 400, {"error": {"message":
        "The input token count exceeds the maximum number of tokens allowed 1048576."}}, TOO_LONG, 1048576),
    Sample("Vertex cap", 400, {"error": {"message":
        "Unable to submit request because it has a maxOutputTokens value of 100000 but the supported range is from 1 "
        "(inclusive) to 65537 (exclusive). Update the value and try again."}}, "output_cap", None, 65536),
    Sample("Bedrock Nova", 400, {"message":
        "Input Tokens Exceeded: Number of input tokens exceeds maximum length. Please update the input to try again."},
        TOO_LONG),
    Sample("Bedrock Nova cap", 400, {"message":
        "Value '10000' at 'inferenceConfig.maxTokens' failed to satisfy constraint: Member must have value less than or "
        "equal to 5120"}, "output_cap", None, 5120),
    Sample("vLLM 0.10", 400, {"object": "error", "message":
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 32768 tokens "
        "and your request has 1500 input tokens (32000 > 32768 - 1500)."}, "output_cap", 32768, 31268),
    Sample("vLLM, prompt only", 400, {"object": "error", "message":
        "This model's maximum context length is 262144 tokens. However, your request has 1000010 input tokens. Please "
        "reduce the length of the input messages."}, TOO_LONG, 262144),
    Sample("vLLM, counting stopped", 400, openai(VLLM.format(n=32768, m=8192, p=24577, t=32769, least="at least ")),
           TOO_LONG, 32768, None, 90_000),
    Sample("vLLM engine", 400, {"error": {"code": 400, "message":
        "The decoder prompt (length 163840) is longer than the maximum model length of 131072. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens plus multimodal tokens."}}, TOO_LONG, 131072),
    Sample("vLLM, negative room", 400, {"object": "error", "message": "max_tokens must be at least 1, got -1357."},
           TOO_LONG),
    Sample("llama-cpp-python", 400, openai("Requested tokens (5083) exceed context window of 4096"), TOO_LONG, 4096),
    Sample("llama.cpp, older", 500, {"error": {"code": 500, "type": "server_error", "message":
        "the request exceeds the available context size. try increasing the context size or enable context shift"}},
        TOO_LONG),
    Sample("Ollama, newer", 400, {"error": "prompt too long; exceeded max context length by 4 tokens"}, TOO_LONG),
    Sample("Cloudflare", 400, {"errors": [{"code": 5021, "message":
        "AiError: The estimated number of input and maximum output tokens (134028) exceeded this model context window "
        "limit (131072)."}]}, "output_cap", 131072),
    Sample("SiliconFlow", 400, {"code": 20015, "message":
        "length of prompt_tokens (35206) must be less than max_seq_len (32768)."}, TOO_LONG, 32768),
    Sample("watsonx", 400, {"errors": [{"code": "invalid_input_argument", "message":
        "the number of input tokens 20346 cannot exceed the total tokens limit 8192 for this model"}]}, TOO_LONG, 8192),
    Sample("gRPC", 400, "Sent message larger than max (50000056 vs. 20971520)", TOO_LONG),
    Sample("Chinese", 400, {"error": {"message": "输入内容长度超过模型最大上下文限制"}}, TOO_LONG),
    Sample("truncated JSON", 400, '{"error":{"message":"This model\'s maximum context length is 8192 tokens. However, yo',
           TOO_LONG, 8192),
    Sample("error inside a stream", None, 'data: {"error":{"message":"prompt is too long: 9 tokens > 8 maximum"}}\n\n',
           TOO_LONG, 8),
    Sample("Python repr", 400, "Error code: 400 - {'error': {'message': 'prompt token count of 65446 exceeds the limit of "
           "64000', 'code': ''}}", TOO_LONG, 64000),
    Sample("stop reason", 200, {"type": "message", "stop_reason": "model_context_window_exceeded"}, TOO_LONG),
    Sample("bare 400, small request", 400, "", "bad_request", request_tokens=900),
    Sample("bare 400, size unknown", 400, None, "bad_request"),
    Sample("bare 400 in words", 400, '{"error":{"message":"Bad Request","code":400}}', TOO_LONG, request_tokens=400_000),
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
    Sample("OpenAI, no parentheses", 400, openai(
        "This model's maximum context length is 8192 tokens, however you requested 9000 tokens, 5000 in the prompt and 4000 "
        "for the completion."), "output_cap", 8192, 3192),
    Sample("OpenRouter with tools", 400, {"error": {"code": 400, "message":
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140500 tokens (106000 of text "
        "input, 2500 of tool input, 32000 in the output)."}}, "output_cap", 131072, 22572),
    Sample("arithmetic", 400, openai("tokens: 7000 + 2000 > 8192"), "output_cap", 8192, 1192),
    Sample("validator's cap", 422, {"detail": [{"type": "less_than_equal", "loc": ["body", "max_tokens"], "msg":
        "Input should be less than or equal to 4096", "input": 100000}]}, "output_cap", None, 4096),
    Sample("Gemini payload", 400, [{"error": {"code": 400, "status": "INVALID_ARGUMENT", "message":
        "Request payload size exceeds the limit: 20971520 bytes."}}], TOO_LONG),
    Sample("ERNIE", 400, {"error_code": 336007, "error_msg": "prompt tokens too long, max 5120 tokens"}, TOO_LONG, 5120),
    Sample("TabbyAPI", 400, {"error": {"message":
        "Context length 9000 is greater than max_seq_len 8192. Generation is aborted."}}, TOO_LONG, 8192),
    Sample("Volcengine", 400, {"error": {"code": "InvalidParameter", "message":
        "Total tokens of image and text exceed max message tokens."}}, TOO_LONG),
    Sample("DashScope, older", 400, {"code": "InvalidParameter", "message":
        "Total message token length exceed model limit (65536 tokens)."}, TOO_LONG, 65536),
    Sample("LM Studio, mid-generation", None, {"error": "Context size has been exceeded."}, TOO_LONG),
    Sample("llama.cpp without a count", 400, {"error": {"message":
        "the request exceeds the available context size (4096 tokens), try increasing it"}}, TOO_LONG, 4096),
    Sample("tokens of this minute", 429, {"message": "You have sent too many tokens this minute. Limit: 20000"},
           "rate_limit"),
    Sample("Moonshot concurrency", 429, {"error": {"type": "rate_limit_reached_error", "message":
        "Your account org-x request reached organization max concurrency: 1, please try again after 1 seconds"}}, "rate_limit"),
    Sample("Moonshot overloaded", 429, {"error": {"type": "engine_overloaded_error", "message":
        "The engine is currently overloaded, please try again later"}}, "overloaded"),
    Sample("Vertex exhausted in stream", None, {"error": {"status": "RESOURCE_EXHAUSTED", "message":
        "Resource has been exhausted (e.g. check quota)."}}, "rate_limit"),
    Sample("xAI credits", 403, {"code": "The caller does not have permission", "error":
        "Your newly created teams doesn't have any credits yet. You can purchase credits."}, "quota"),
    Sample("Codex usage limit", 429, {"error": {"type": "usage_limit_reached", "message": "The usage limit has been reached",
        "plan_type": "plus", "resets_in_seconds": 5400}}, "quota"),
    Sample("Copilot premium", 402, {"error": {"code": "quota_exceeded", "message":
        "You have exceeded your premium request allowance."}}, "quota"),
    Sample("streaming is needed for long outputs", 400, openai("Requests with max_tokens > 4096 must have stream=true"),
           "bad_request"),
    Sample("output minimum is no cap", 400, openai(
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 1 instead."),
        "bad_request"),
    Sample("Hugging Face loading", 503, {"error": "Model gpt2 is currently loading", "estimated_time": 20.0}, "overloaded"),
    Sample("AWS token", 400, {"__type": "UnrecognizedClientException", "message":
        "The security token included in the request is invalid."}, "auth"),
    Sample("OpenRouter moderation", 403, {"error": {"code": 403, "message":
        "openai/gpt-4o requires moderation. Your input was flagged for \"violence\"."}}, "bad_request"),
    Sample("words for a status", None, "503 Service Unavailable", "overloaded"),
    Sample("refused", None, "All connection attempts failed", "transport"),
    Sample("closed", None, "Remote end closed connection without response", "transport"),
    Sample("TLS", None, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed", "transport"),
    Sample("a window in other words", 400, "The model's context window is 32768 tokens but your request used 40000",
           TOO_LONG, 32768),
    Sample("a limit in other words", 400, openai("This request has 150000 tokens which is over the 128000 token limit"),
           TOO_LONG, 128000),
    Sample("too big", 400, "Request too big: 300000 tokens, limit 200000", TOO_LONG, 200000),
    Sample("allowed input", 400, "maximum allowed input tokens is 30720, received 40000", TOO_LONG, 30720),
    Sample("max_model_len", 400, "Total tokens 9000 exceeds max_model_len 8192", TOO_LONG, 8192),
    Sample("no figures at all", 400, "conversation too long", TOO_LONG),
    Sample("a range in other words", 400, "max_tokens should be in range [1, 8192]", "output_cap", None, 8192),
    Sample("a cap in other words", 400, "`max_tokens` is too high. The maximum for this model is 4096", "output_cap", None, 4096),
    Sample("a cap on completions", 400, "Requested completion tokens (9000) exceed the limit of 4096", "output_cap", None, 4096),
    Sample("sum in other words", 400, "prompt (5000 tokens) + completion (4000 tokens) exceeds context window 8192",
           "output_cap", 8192, 3192),
    Sample("a prompt that the arithmetic alone refuses", 400, "prompt tokens (9000) + max tokens (4000) > 8192", TOO_LONG, 8192),
    Sample("rate limit that speaks of the prompt", 400, "Rate limit: prompt is too long for your tier's tokens per minute",
           "rate_limit"),
    Sample("rate limit that speaks of the context", 429, "You have exceeded the maximum context tokens per minute",
           "rate_limit"),
    Sample("OpenRouter free models", 429, {"error": {"code": 429, "message":
        "Rate limit exceeded: free-models-per-day. Add 10 credits to unlock 1000 free model requests per day"}}, "rate_limit"),
    Sample("daily quota", 400, "You have reached your daily quota", "quota"),
    Sample("a tool's stack is not ours", 400, openai("Tool call failed: maximum call stack size exceeded"), "bad_request"),
    Sample("a description is not the prompt", 400, openai(
        "Function get_context: description exceeds limit of 1024 characters"), "bad_request"),
    Sample("an image is not the prompt", 400, "The input image is too large", "bad_request"),
    Sample("a tool's own words are not the service's", 400, openai(
        "Tool 'summarize' returned an error: context length exceeded"), "bad_request"),
    Sample("the service's code counts beside a tool's words", 400, openai(
        "After the tool returned, the request could not be sent", code="context_length_exceeded"), TOO_LONG),
)  # fmt: skip

# Rate-limit texts, for fuzzing: however they are cut or scrambled, they are never an overflow.
RATE_LIMITS: tuple[Sample, ...] = tuple(s for s in VARIANTS if s.kind == "rate_limit")
