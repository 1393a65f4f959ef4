"""Tables of error wordings per kind, each row with a real sample."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.core.errors import ErrorKind
from perdure.providers.errors.overflow_patterns import LimitRow


@dataclass(frozen=True, slots=True)
class FaultRow:
    kind: ErrorKind
    pattern: re.Pattern[str]
    # (status, body) as services sent them.
    samples: tuple[tuple[int | None, str], ...]


def _row(kind: ErrorKind, pattern: str, *samples: tuple[int | None, str]) -> FaultRow:
    return FaultRow(kind, re.compile(pattern, re.IGNORECASE), samples)


# Out of money or allowance: waiting a minute does not help.
QUOTA = _row(
    "quota",
    r"insufficient[_ ](?:\w+[_ ])?(?:quota|balance|credits?|funds)|credit balance is too low|billing[_ ](?:hard[_ ])?"
    r"(?:limit|error|not[_ ]active)|out of credits|payment required|requires more credits|can only afford|key limit "
    r"exceeded|usage[_ ]limits?[_ ](?:(?:has|have) been )?(?:reached|exceeded)|reached your (?:specified )?(?:api )?"
    r"(?:usage|spend\w*|monthly|weekly) limits?|(?:monthly|weekly|daily) (?:usage|spend\w*|credit|token) "
    r"(?:limit|quota)|monthly included credits|spending (?:limit|cap)|\barrear|"
    r"account (?:is )?(?:not active|suspended|overdue)|"
    r"maximum billing reached|exceeded_current_quota|premium requests?|(?:does ?n.t|do ?n.t|do not|does not) have "
    r"(?:any|enough) credits|not enough credits|"
    r"(?:hit|reached) your (?:usage )?limit|token quota|(?:daily|weekly|monthly) quota|使用上限|extra usage is "
    r"required|ServiceQuotaExceeded|"
    r"FreeTierOnly|free tier of the model has been exhausted|no resource package|余额不足|欠费|账户已欠|额度已用",
    (429, '{"error":{"message":"You exceeded your current quota, please check your plan and billing details.",'
     '"type":"insufficient_quota","param":null,"code":"insufficient_quota"}}'),
    (400, '{"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access '
     'the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits."}}'),
    (402, '{"error":{"message":"This request requires more credits, or fewer max_tokens. You requested up to 32000 '
     'tokens, but can only afford 1520.","code":402}}'),
    (429, '{"error":{"type":"usage_limit_reached","message":"The usage limit has been '
     'reached","resets_in_seconds":5400}}'),
    (403, '{"error":{"message":"Key limit exceeded (total limit).","code":403}}'),
)  # fmt: skip

# Ambiguous: used for an exhausted quota and for a rate limit alike; the rest of the text decides.
MAYBE_QUOTA = re.compile(
    r"exceeded your current quota|quota[_ ]exceeded|quota_?exceeded|exceeded (?:your|the) quota|payment method|"
    r"billing details|usage limit",
    re.IGNORECASE,
)
# With status 413 these distinguish a plan's limit from a window's: Groq, over its tokens per minute.
PLAN = re.compile(r"\btier\b|on_demand|\borg(?:anization)?\b|requested:? \d|upgrade|rate-limits", re.IGNORECASE)
SOON = re.compile(r"retry in \d|try again in \d|per[_ ]?minute", re.IGNORECASE)
PER_DAY = re.compile(r"per[_ ]?day|daily|requests?perday", re.IGNORECASE)

RATE = _row(
    "rate_limit",
    r"rate[ _-]?limit|rate_?quota|ratelimit|tokens? (?:usage )?per[ _-]?(?:min|hour|day|sec)|requests? per[ _-]?(?:min|"
    r"hour|day|sec)|calls? ?/ ?(?:min|sec|hour)|\b(?:TPM|RPM|TPD|RPD|ITPM|OTPM|RPS)\b|per[-_ ]?minute|"
    r"too[_ ]many[_ ](?:concurrent[_ ])?requests|throttl|request too large for (?:model|gpt|o\d)|"
    r"too many tokens,? (?:please wait|per )|concurren\w+ (?:limit|request)|slow down|allocated quota exceeded|"
    r"(?:this|per|each|every|last|current|one|in a) (?:minute|second|hour|day)\b|tokens? ?/ ?min|"
    r"reached (?:\w+ )?max (?:request|concurrency|rpm|tpm)|resource[_ ]?(?:has been )?exhausted(?!.{0,80}larger "
    r"than max)|"
    r"limit:? \d+,? (?:used:? \d+,? )?requested:? \d+|tokens\b.{0,40}\brate_limit|"
    r"tier capacity exceeded|限流|请求过于频繁|并发|频率限制|速率限制",
    (429, '{"error":{"message":"Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit '
     '30000, Used 28911, Requested 4093. Please try again in 6.008s.","type":"tokens","code":"rate_limit_exceeded"}}'),
    (413, '{"error":{"message":"Request too large for model `llama-3.3-70b-versatile` in organization `org_x` service '
     'tier `on_demand` on tokens per minute (TPM): Limit 6000, Requested 4810, please reduce your message size and '
     'try again.","type":"tokens","code":"rate_limit_exceeded"}}'),
    (429, '{"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your '
     'organization\'s '
     'rate limit of 40,000 input tokens per minute."}}'),
    (429, '{"message":"Too many tokens, please wait before trying again."}'),
    (429, '{"error":{"code":"429","message":"Requests to the ChatCompletions_Create Operation under Azure OpenAI '
     'API have '
     'exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 20 seconds."}}'),
)  # fmt: skip

AUTH = _row(
    "auth",
    r"invalid[_ ]?(?:api[_ -]?key|x-api-key|bearer|auth\w*|access token|api token)|"
    r"incorrect api key|api[_ ]key[_ ](?:not valid|invalid|expired|is (?:invalid|missing|not valid))|no api key|"
    r"authentication[_ ](?:error|failed|fails|required)|unauthori[sz]ed|unauthenticated|permission[_ ](?:error|denied)|"
    r"no auth credentials|token (?:has )?expired|expiredtoken|unrecognizedclient|accessdenied|access denied|"
    r"x-api-key header is required|did not provide an api key|your api key has expired|oauth token|invalid_grant",
    (401, '{"error":{"message":"Incorrect API key provided: sk-abc***xyz.","type":"invalid_request_error","code":'
     '"invalid_api_key"}}'),
    (400, '[{"error":{"code":400,"message":"API key not valid. Please pass a valid API '
     'key.","status":"INVALID_ARGUMENT",'
     '"details":[{"reason":"API_KEY_INVALID"}]}}]'),
    (403, '{"__type":"ExpiredTokenException","message":"The security token included in the request is expired"}'),
)  # fmt: skip

OVERLOADED = _row(
    "overloaded",
    r"overload|over capacity|at capacity|(?:no|insufficient|exhausted|lacks?) \w{0,12} ?capacity|high (?:load|demand|"
    r"traffic)|(?:server|service|system|model|engine) (?:is |are )?(?:currently )?(?:too )?busy|temporarily "
    r"(?:unavailable|overloaded)|service[_ ]?unavailable|(?:currently|still) loading|loading model|model is loading|"
    r"no (?:healthy|available) (?:upstream|workers?|servers?|instances?|provider)|modelnotready|internal[_ "
    r"]?server[_ ]?"
    r"(?:error|exception)|server_error|\bapi_error\b|insufficient_system_resource|服务繁忙|服务器繁忙|负载",
    (529, '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
    (None, '{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'),
    (503, '{"error":{"message":"The server is currently overloaded with other requests. Sorry about that!"}}'),
    (503, '{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}'),
    (503, '[{"error":{"code":503,"message":"The model is overloaded. Please try again '
     'later.","status":"UNAVAILABLE"}}]'),
)  # fmt: skip

TRANSPORT = _row(
    "transport",
    r"time(?:d)?[ _-]?out|deadline[_ ]exceeded|connection (?:was )?(?:reset|refused|closed|aborted|lost|error|broken)|"
    r"connect(?:ion)?[_ ]?error|econn\w+|broken pipe|\beof\b|name or service not known|getaddrinfo|nodename nor "
    r"servname|"
    r"name resolution|\bssl|certificate|peer closed|incomplete (?:chunked )?read|incompleteread|premature|socket "
    r"hang up|"
    r"closed (?:the )?connection|connection attempts|connection terminated|handshake|"
    r"etimedout|enotfound|eai_again|server disconnected|disconnect|bad gateway|gateway|network|remote ?protocol|"
    r"stream (?:ended|closed|error)|"
    r"context cancell?ed|request (?:was )?cancell?ed|fetch failed|\b(?:read|write|close|protocol|os)error\b|"
    r"unreachable|no route to host|modelstreamerror",
    (504, "<html><head><title>504 Gateway Time-out</title></head><body>nginx</body></html>"),
    (None, "ReadTimeout: timed out"),
    (None, "ConnectError: [Errno 111] Connection refused"),
    (None, "RemoteProtocolError: peer closed connection without sending complete message body (incomplete chunked "
     "read)"),
)  # fmt: skip

BAD_REQUEST = _row(
    "bad_request",
    r"invalid[_ ]request|invalid[_ ]argument|invalid[_ ]prompt|bad[_ ]?request|validation|not[_ ]found|unsupported|"
    r"unprocessable|malformed|does not exist|content[_ ](?:filter|policy)|must be followed by|unexpected",
    (400, '{"error":{"message":"Invalid parameter: messages with role \'tool\' must be a response to a preceeding '
     'message '
     'with \'tool_calls\'.","type":"invalid_request_error","param":"messages.[3].role","code":null}}'),
    (404, '{"error":{"message":"The model `gpt-9` does not exist or you do not have access to it.","code":'
     '"model_not_found"}}'),
    (400, '{"type":"error","error":{"type":"invalid_request_error","message":"messages: roles must alternate between '
     '\\"user\\" and \\"assistant\\", but found multiple \\"user\\" roles in a row"}}'),
)  # fmt: skip

FAULT_ROWS: tuple[FaultRow, ...] = (QUOTA, RATE, AUTH, OVERLOADED, TRANSPORT, BAD_REQUEST)

# Numeric codes of some services (Zhipu, MiniMax), used only when the text matches nothing.
CODES: dict[str, ErrorKind] = {
    "1113": "quota",
    "1008": "quota",
    "1302": "rate_limit",
    "1303": "rate_limit",
    "1305": "rate_limit",
    "1261": "prompt_too_long",
}


def _prompt_table_row(pattern: str, service: str, sample: str, status: int = 400) -> LimitRow:
    return LimitRow("prompt", re.compile(pattern, re.IGNORECASE), service, sample, status)


PROMPT_ROWS: tuple[LimitRow, ...] = (
    _prompt_table_row(
        r"maximum context length is (?P<window>\d+) tokens?.{0,40}?(?:resulted in|has|contains?|requested)"
        r"(?: about| at least| over)? (?P<prompt>\d+)(?: input)? tokens?",
        "OpenAI, Azure, vLLM",
        "This model's maximum context length is 8192 tokens. However, your messages resulted in 8227 tokens. Please "
        "reduce the length of the messages.",
    ),
    _prompt_table_row(
        r"input tokens exceed the configured limit of (?P<window>\d+) tokens?",
        "Azure",
        "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 509178 tokens. Please "
        "reduce the length of the messages.",
    ),
    _prompt_table_row(
        r"prompt is too long:? (?P<prompt>\d+) tokens? > (?P<window>\d+) maximum",
        "Anthropic, Bedrock, Vertex",
        "prompt is too long: 208310 tokens > 200000 maximum",
    ),
    _prompt_table_row(
        r"prompt is too long:? (?P<prompt>\d+),? model maximum context length:? (?P<window>\d+)",
        "Fireworks",
        "The prompt is too long: 140008, model maximum context length: 131071",
    ),
    _prompt_table_row(
        r"(?:request|input|prompt) \((?P<prompt>\d+) tokens?\) (?:exceeds the available|is larger than the max) "
        r"context "
        r"size \((?P<window>\d+)",
        "llama.cpp",
        "request (6031 tokens) exceeds the available context size (2048 tokens), try increasing it",
    ),
    _prompt_table_row(
        r"exceeds the available context size \((?P<window>\d+)",
        "llama.cpp, without a count",
        "the request exceeds the available context size (4096 tokens), try increasing it",
    ),
    _prompt_table_row(
        r"context shift is disabled",
        "llama.cpp, while it generates",
        "context shift is disabled",
        500,
    ),
    _prompt_table_row(
        r"(?:request|body|payload|prompt|input) too large.{0,60}?max size:? (?P<window>\d+) tokens?",
        "GitHub Models",
        "Request body too large for gpt-4o model. Max size: 8000 tokens.",
        413,
    ),
    _prompt_table_row(
        r"requested tokens \((?P<prompt>\d+)\) exceed context window of (?P<window>\d+)",
        "llama-cpp-python",
        "Requested tokens (5083) exceed context window of 4096",
    ),
    _prompt_table_row(
        r"input token count(?: is)? \(?(?P<prompt>\d+)?\)?.{0,30}?(?:exceeds the maximum number of tokens allowed|"
        r"model only supports up to)\D{0,3}(?P<window>\d+)",
        "Gemini, Vertex",
        "The input token count (132478) exceeds the maximum number of tokens allowed (131072).",
    ),
    _prompt_table_row(
        r"cannot truncate to (?P<window>\d+), required (?P<prompt>\d+)",
        "Gemini, inner",
        "[original: beyond::dependency::INVALID_ARGUMENT] Cannot truncate to 89998, required 355220: text:355351",
    ),
    _prompt_table_row(
        r"range of input length should be \[\d+, ?(?P<window>\d+)\]",
        "DashScope",
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 983616]",
    ),
    _prompt_table_row(
        r"maximum prompt length is (?P<window>\d+).{0,40}?contains (?P<prompt>\d+) tokens?",
        "xAI",
        "This model's maximum prompt length is 131072 but the request contains 136973 tokens.",
    ),
    _prompt_table_row(
        r"prompt contains (?P<prompt>\d+) tokens?.{0,40}?too large for model with (?P<window>\d+) maximum context",
        "Mistral",
        "Prompt contains 41172 tokens and 0 draft tokens, too large for model with 40960 maximum context length",
    ),
    _prompt_table_row(
        r"prompt token count of (?P<prompt>\d+) exceeds the limit of (?P<window>\d+)",
        "Copilot",
        "prompt token count of 146270 exceeds the limit of 128000",
    ),
    _prompt_table_row(
        r"context length of only (?P<window>\d+) tokens?|n_keep:? (?P<prompt>\d+) ?>=? ?n_ctx:? (?P<n_ctx>\d+)",
        "LM Studio",
        "Trying to keep the first 111490 tokens when context the overflows. However, the model is loaded with context "
        "length of only 32768 tokens, which is not enough. Try to load the model with a larger context length.",
    ),
    _prompt_table_row(
        r"tokens to keep from the initial prompt is greater than the context length",
        "LM Studio",
        "The number of tokens to keep from the initial prompt is greater than the context length.",
    ),
    _prompt_table_row(
        r"reached context length of (?P<window>\d+) tokens?",
        "LM Studio",
        "Reached context length of 4096 tokens with model (arch:qwen2) that does not currently support mid-generation "
        "context overflow.",
    ),
    _prompt_table_row(
        r"input \((?P<prompt>\d+) tokens?\) is longer than the model'?s context length \((?P<window>\d+)",
        "SGLang",
        "The input (61709 tokens) is longer than the model's context length (40960 tokens).",
    ),
    _prompt_table_row(
        r"input length \((?P<prompt>\d+)(?: tokens?)?\) exceeds (?:the|model'?s) maximum (?:allowed|context) length "
        r"\((?P<window>\d+)",
        "SGLang",
        "Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens). Use a shorter input or enable "
        "--allow-auto-truncate.",
    ),
    _prompt_table_row(
        r"prompt \((?:total )?length (?P<prompt>\d+)\) is (?:too long|longer than).{0,60}?model length of "
        r"(?P<window>\d+)",
        "vLLM engine",
        "The decoder prompt (length 163840) is longer than the maximum model length of 131072. Make sure that "
        "`max_model_len` is no smaller than the number of text tokens plus multimodal tokens.",
    ),
    _prompt_table_row(
        r"max_(?:completion_)?tokens must be at least 1, got -\d+",
        "vLLM, older",
        "max_tokens must be at least 1, got -1357.",
    ),
    _prompt_table_row(
        r"inputs?[`'\"]? must have less than (?P<window>\d+) tokens?",
        "TGI",
        "Input validation error: `inputs` must have less than 4096 tokens. Given: 5187",
        422,
    ),
    _prompt_table_row(
        r"tokens in the prompt cannot exceed (?P<window>\d+)",
        "Cohere",
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292. Try using a shorter "
        "prompt, or enabling prompt truncating.",
    ),
    _prompt_table_row(
        r"size limit exceeded by \d+ tokens.{0,80}?(?:limit for this model is (?P<window>\d+)|$)",
        "Cohere",
        "too many tokens: size limit exceeded by 713295 tokens. Try using shorter or fewer inputs. The limit for this "
        "model is 288000 tokens.",
    ),
    _prompt_table_row(
        r"too many input tokens.{0,10}?max input tokens: (?P<window>\d+)",
        "Bedrock Titan",
        "400 Bad Request: Too many input tokens. Max input tokens: 8192, request input token count: 11235",
    ),
    _prompt_table_row(
        r"number of input tokens (?P<prompt>\d+) cannot exceed the total tokens limit (?P<window>\d+)",
        "watsonx",
        "the number of input tokens 20346 cannot exceed the total tokens limit 8192 for this model",
    ),
    _prompt_table_row(
        r"length of prompt_tokens \((?P<prompt>\d+)\) must be less than max_seq_len \((?P<window>\d+)\)",
        "SiliconFlow",
        "length of prompt_tokens (35206) must be less than max_seq_len (32768).",
    ),
    _prompt_table_row(
        r"prompt length \((?P<prompt>\d+)\) exceeds maximum input length \((?P<window>\d+)\)",
        "TensorRT-LLM, NIM",
        "Prompt length (8500) exceeds maximum input length (8192). Set log level to info and check TRTGptModel logs.",
    ),
    _prompt_table_row(
        r"prompt has (?P<prompt>\d+) tokens?,? but the configured context size is (?P<window>\d+)",
        "local servers",
        "Prompt has 300,000 tokens, but the configured context size is 131,072 tokens",
    ),
    _prompt_table_row(
        r"context (?:window|length|size) (?:is|of) (?:only )?(?P<window>\d{3,9})(?: tokens?)?[,;]? (?:but|while|"
        r"whereas|and) "
        r"\D{0,60}?(?P<prompt>\d{3,9})",
        "wordings of a window",
        "The model's context window is 32768 tokens but your request used 40000",
    ),
    _prompt_table_row(
        r"(?P<prompt>\d{3,9}) tokens?,? (?:which )?(?:is )?(?:over|above|exceeds?|exceeding|more than|larger than|>) "
        r"(?:the |its )?"
        r"(?:limit of |maximum of )?(?P<window>\d{3,9})",
        "wordings of a limit",
        "This request has 150000 tokens which is over the 128000 token limit for this model",
    ),
    _prompt_table_row(
        r"(?:request|prompt|input|messages?|conversation|context) (?:is )?too (?:big|large|long):? (?P<prompt>\d{3,9}) "
        r"tokens?"
        r"\D{1,20}(?P<window>\d{3,9})",
        "wordings of a limit",
        "Request too big: 300000 tokens, limit 200000",
    ),
    _prompt_table_row(
        r"max(?:imum)? (?:allowed )?(?:number of )?(?:input|prompt|context) tokens?(?: "
        r"allowed)?\D{0,12}(?P<window>\d{3,9})|"
        r"tokens in the (?:prompt|input) (?:must|should) be (?:less than|at most|<=?) (?P<n_ctx>\d{3,9})",
        "wordings of a limit",
        "maximum allowed input tokens is 30720, received 40000",
    ),
    _prompt_table_row(
        r"exceeds? max_(?:model|seq)_len\D{0,4}(?P<window>\d{3,9})|max_(?:model|seq)_len exceeded",
        "vLLM and its kin",
        "Total tokens 9000 exceeds max_model_len 8192",
    ),
    _prompt_table_row(
        r"maximum context length (?:is|of) (?P<window>\d+)",
        "OpenAI and others, cut short",
        "This model's maximum context length is 8192 tokens. Please reduce the length of the prompt.",
    ),
)

# Sizes that are not counted in tokens: nothing to learn for the window, but a shorter prompt helps.
SIZE_ROWS: tuple[LimitRow, ...] = (
    _prompt_table_row(
        r"request exceeds the maximum (?:allowed )?(?:size|number of bytes)|request_too_large",
        "Anthropic",
        "Request exceeds the maximum size",
        413,
    ),
    _prompt_table_row(
        r"'(?:messages|input)\b(?![^']*(?:\.id|\.name|_id)')[^']*': (?:string|array) too long",
        "OpenAI",
        "Invalid 'messages[1].content': string too long. Expected a string with maximum length 10485760, but got a "
        "string with length 12582912 instead.",
    ),
    _prompt_table_row(r"message size \d+ exceeds limit", "Kimi", "total message size 2100954 exceeds limit 2097152"),
    _prompt_table_row(
        r"message larger than max \(\d+ vs\.? \d+\)",
        "gRPC",
        "Sent message larger than max (50000056 vs. 20971520)",
    ),
    _prompt_table_row(
        r"passed \d+ input characters", "vLLM", "You passed 900000 input characters and requested 4096 output tokens."
    ),
    _prompt_table_row(
        r"payload size exceeds the limit|'body' failed to satisfy constraint: member must have length less",
        "Gemini, Bedrock",
        "Request payload size exceeds the limit: 20971520 bytes.",
    ),
    _prompt_table_row(
        r"(?:payload|request entity|content|request body) too large", "gateways", "Payload Too Large", 413
    ),
    _prompt_table_row(
        r"expected maxLength: \d+, actual: \d+",
        "Bedrock Titan",
        "Malformed input request: expected maxLength: 40000, actual: 63281, please reformat your input and try again.",
    ),
    _prompt_table_row(
        r"input is too large to process",
        "llama.cpp",
        "input is too large to process. increase the physical batch size",
        500,
    ),
)

_SUBJECT = (
    r"(?:context[ _](?:window|length|size|limit)|(?:maximum|max) (?:context|sequence|prompt|input|model|token|"
    r"message)[ _]?"
    r"(?:length|size|window|limit|tokens?)|(?:prompt|input|sequence|message|conversation|request) (?:length|size|"
    r"tokens?)|"
    r"(?:prompt|input) token count|tokens in (?:the )?(?:request|prompt|input)|token (?:limit|length|count))"
)

# Wordings no table knows: something that is measured, and a word for too much of it, close together.
GENERIC_ROWS: tuple[LimitRow, ...] = (
    _prompt_table_row(
        r"context[_ ](?:length|window|size)[_ ](?:has been )?(?:exceeded|overflow)|contextwindowexceeded|"
        r"context_overflow|exceed_context_size|model_max_prompt_tokens_exceeded|prompt_too_long",
        "codes",
        "model_context_window_exceeded",
    ),
    _prompt_table_row(
        rf"(?:exceed\w*|longer than|larger than|greater than|more than|overflow\w*|too (?:long|large|big) for|beyond|"
        rf"surpass\w*|above)(?: \S+){{0,6}}? (?:\S+'s )?{_SUBJECT}",
        "OpenAI Responses, Ollama",
        "Your input exceeds the context window of this model. Please adjust your input and try again.",
    ),
    _prompt_table_row(
        rf"{_SUBJECT}\b.{{0,50}}?(?:exceed|too (?:long|large|many|big)|overflow|longer than|larger than|greater than|"
        r"not enough|insufficient)",
        "MiniMax, Nova",
        "invalid params, context window exceeds limit (2013)",
    ),
    _prompt_table_row(
        r"(?:prompt|input|messages?|conversation|history|query|text) (?:(?:is|are|was|were) )?(?:way |far |much )?"
        r"(?:too (?:long|large|big)|longer than)",
        "Bedrock",
        "Input is too long for requested model.",
    ),
    _prompt_table_row(
        r"reduce the (?:length|size|number) of (?:the |your )?(?:tokens in (?:the |your )?)?(?:messages?|prompts?|"
        r"input|"
        r"conversation|context)|(?:shorten|reduce) (?:the |your )(?:prompt|input|messages?|conversation)",
        "Groq",
        "Please reduce the length of the messages or completion.",
    ),
    _prompt_table_row(
        r"too many (?:input |prompt |total )?tokens(?!,? (?:please wait|per\b))|prompt has too many tokens|"
        r"prompt exceeds (?:max|the)|total length of all messages|prompt too long|input too long",
        "Cohere, Zhipu",
        "Prompt exceeds max length",
    ),
    _prompt_table_row(
        r"(?:上下文|输入|提示词?|prompt|请求|内容|消息|文本|token).{0,12}?(?:超出|超过|超长|过长|太长|超限)",
        "Chinese services",
        "输入内容长度超过模型最大上下文限制",
    ),
)
