"""What services print when something other than length is wrong: one row a cause, each with real samples."""

from __future__ import annotations

import re
from dataclasses import dataclass

from perdure.core.errors import ErrorKind


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

# Either: the words are used for a spent allowance and for a full minute alike; what stands beside them decides.
MAYBE_QUOTA = re.compile(
    r"exceeded your current quota|quota[_ ]exceeded|quota_?exceeded|exceeded (?:your|the) quota|payment method|"
    r"billing details|usage limit",
    re.IGNORECASE,
)
# Beside a 413 these tell a plan's limit from a window's: Groq answers so to more tokens than a minute allows.
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

# Numbers some services give in place of words (Zhipu, MiniMax), asked only when the words said nothing.
CODES: dict[str, ErrorKind] = {
    "1113": "quota",
    "1008": "quota",
    "1302": "rate_limit",
    "1303": "rate_limit",
    "1305": "rate_limit",
    "1261": "prompt_too_long",
}
