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
_HEX = re.compile(r"[0-9a-fA-F]+")
_SIGNS = re.compile(r"[!@#$%^&*+=~]")
_STRETCH = re.compile(r"[A-Za-z0-9]+")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|-)[A-Za-z_$][\w$]*)*")
# Which letter follows which in nine tenths of the pairs in words and names, and in a quarter of those drawn at random.
_PAIRS = frozenset(
    group[0] + second
    for group in (
        "abcdgilmnprstu baelou caehiklortu daeiosu eacdeflmnprstvx faefiou gei haeio iabcdefglmnoprstv ke ladeilostuy"
        " maeimop nacdefginostu ocdlmnoprstuvw paeiloprty qu radegimnorstuy sacehiopstuy taehiorstuy uelmnprst vaei"
        " wahi xpt yp ze"
    ).split()
    for second in group[1:]
)


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


def _pairs(parts: list[str]) -> tuple[int, int]:
    """How many pairs of letters the parts hold, and how many of those are common in words."""
    pairs = [part[i : i + 2].lower() for part in parts for i in range(len(part) - 1) if part.isalpha()]
    return len(pairs), sum(pair in _PAIRS for pair in pairs)


def is_wordy(value: str) -> bool:
    """Whether it reads as words: names, slugs and sentences do, digits in them or not."""
    parts = _PARTS.findall(value)
    held, (pairs, common) = sum(map(len, parts)), _pairs(parts)
    return held == 0 or (common >= 0.6 * pairs and pairs >= 0.4 * held)


def looks_random(value: str) -> bool:
    """Whether it was drawn rather than written, going by its longest stretch of letters and digits."""
    stretch = max(_STRETCH.findall(_SIGNS.sub("", value)), key=len, default="")
    parts = _PARTS.findall(stretch)
    held, digits = len(stretch), sum(len(part) for part in parts if part.isdigit())
    if held < 8 or len(set(stretch)) < 5 or digits == held:
        return False
    pairs, common = _pairs(parts)
    if digits == 0:
        return held >= 16 and len(parts) >= 4 and common < 0.6 * pairs
    switches = sum(a.isdigit() != b.isdigit() for a, b in zip(parts, parts[1:], strict=False))
    if switches >= 3 and (held <= 3.2 * len(parts) or _HEX.fullmatch(stretch)):
        return True
    return common < (0.6 if held >= 16 else 0.5) * pairs or (len(parts) >= 4 and held <= 2.6 * len(parts))
