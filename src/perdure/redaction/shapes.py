"""What a value looks like: a stand-in, a word or piece of code, or something random enough to be a secret."""

from __future__ import annotations

import re

MARK = "[REDACTED]"

# Stand-ins: references to a secret kept elsewhere, and what people type where a secret would be.
_REFERENCE = re.compile(
    r"""^(?: \$[\w({] | \{\{ | %\( | %[\w-]*%?$ | <[^>]*>?$ | \{[\w.:!]*\}$ | \#\{ | \[[^\]]*\]$ | @ \w | ! (?:Ref|Sub|secret)\b
         | (?:process\.env | os\.(?:environ|getenv) | (?:System|Deno|std|import\.meta)[.:]+(?:env|getenv)
           | env[.:(\[] | ENV[\[.(] | secrets?\. | vars?\. | vault: | op:// | ref\+ | ENC\[ | arn:aws | projects/
           | self\. | this\. | config[.\[] | settings[.\[] | getenv | viper\. )
        )""",
    re.VERBOSE,
)
_STAND_IN = re.compile(
    r"""REDACTED | \.\.\. | … | \*\*\* | ••
      | (?:^|[^a-z])(?:your?|my|the|some|any|insert|enter|replace|change|put|add|paste|fill|same) [-_ ]? (?:own|new|actual|real|with|in|me|it|this|here|with)?
        [-_ ]? (?:\w+[-_ ])* (?:api|key|token|secret|password|passwd|pwd|pass|auth|access|value|id|here|me|it|this|client|bot|app|service|org|db|database)
      | place[-_ ]?holder | (?:^|[-_ ])here$ | goes[-_]here | ^(?:masked|hidden|removed|omitted|elided|filtered|scrubbed|sanitized)$
      | x{6} | (?:^|[-_])x{3,}(?:$|[-_])""",
    re.VERBOSE | re.IGNORECASE,
)
_EMPTY_WORDS = frozenset(
    "none null nil undefined true false yes no on off default empty unset todo tbd fixme n/a na optional required string str"
    " text bytes byte bool boolean number integer any object unknown void never auto".split()
)
_TYPE = re.compile(
    r"(?:[uif]|u?int|float|utf-?|base|sha-?|md|aes-?|rsa-?|ed|hs|rs|es|ps|argon|pbkdf|bcrypt|scrypt|latin|oauth|v|x|ascii)"
    r"-?\d+(?:array|bytes?|_t|\[\])*",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|-)[A-Za-z_$][\w$]*)*")
_VOWELS = re.compile(r"[aeiouy]", re.IGNORECASE)


def is_stand_in(value: str) -> bool:
    """Whether the value only holds the place of a secret: `your-api-key`, `${VAR}`, `<token>`, `****`, `changeme`."""
    bare = value.strip("\"'`,;:.!?()")
    if len(set(bare.lower())) < 2 or bare.lower() in _EMPTY_WORDS:
        return True
    return bool(_REFERENCE.match(value) or _STAND_IN.search(value) or _TYPE.fullmatch(bare))


def is_filler(body: str) -> bool:
    """Whether the body of a well-formed key is visibly nobody's: `xxxxxxxx`, `0000…`, `your-key-here`."""
    rest = body.strip("-_=.")
    return len(set(rest)) < 2 and rest[:1] in "xX0*." or bool(_STAND_IN.search(body))


def is_uuid(value: str) -> bool:
    return bool(_UUID.fullmatch(value))


def is_identifier(value: str) -> bool:
    """Whether it can be a name in code, dotted and dashed names included."""
    return bool(_IDENTIFIER.fullmatch(value))


def is_wordy(value: str) -> bool:
    """Whether it reads as words: mostly runs of letters that could be spoken, as names, slugs and sentences do."""
    parts = _PARTS.findall(value)
    letters = [p for p in parts if p[0].isalpha()]
    spoken = sum(len(p) for p in letters if len(p) >= 3 and _VOWELS.search(p))
    held = sum(map(len, parts))
    return held == 0 or (spoken >= 0.6 * held and held >= 3.2 * len(parts))


def looks_random(value: str) -> bool:
    """Whether it was drawn rather than written: letters and digits mixed in short runs, many of them different."""
    parts = _PARTS.findall(value)
    held = sum(map(len, parts))
    if held < 8 or len(set(value)) < min(8, 2 + held // 4) or is_wordy(value):
        return False
    digits = sum(len(p) for p in parts if p[0].isdigit())
    if digits == held:
        return False
    mixed_case = not (value.islower() or value.isupper())
    if digits == 0 and not mixed_case:
        return False
    return held <= (3.0 if digits else 2.6) * len(parts) or (held >= 20 and held <= 4.5 * len(parts) and digits > 1)
