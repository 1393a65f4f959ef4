"""Classify a value: placeholder, word, code, or random enough to be a secret."""

from __future__ import annotations

import itertools
import re

MARK = "[REDACTED]"

# References to a secret that is kept elsewhere.
_REFERENCE = re.compile(
    r"""^(?: \$[\w({] | \{\{ | %\( | %[\w-]*%?$ | <[^>]*>?$ | \{[\w.:!]*\}$ | \#\{ | \[[^\]]*\]$ | @ \w
         | ! (?:Ref|Sub|secret)\b
         | (?:process\.env | os\.(?:environ|getenv) | (?:System|Deno|std|import\.meta)[.:]+(?:env|getenv)
           | env[.:(\[] | ENV[\[.(] | secrets?\. | vars?\. | vault: | op:// | ref\+ | ENC\[ | arn:aws | projects/
           | self\. | this\. | config[.\[] | settings[.\[] | getenv | viper\. )
        )""",
    re.VERBOSE,
)
# Placeholders for a secret: masked, or in words (`your-api-key`, `insert_token_here`).
_BLOTTED = re.compile(r"REDACTED|\.\.\.|…|\*\*\*|••|[xX]{6}|(?:^|[-_])[xX]{3,}(?:$|[-_])")
_SAID = re.compile(
    r"^(?:your|insert|enter|replace|change|paste)[-_ ]?(?:api|key|token|secret|pass|pwd|me|it|this|here|with|own)"
    r"|^(?:masked|hidden|removed|omitted|filtered|scrubbed|sanitized)$|place[-_ ]?holder|[-_ ]here$",
    re.IGNORECASE,
)
_SPELLED = re.compile(r"[A-Za-z]+")
_OPENERS = re.compile(
    r"your|my|the|some|any|insert|enter|replace|change|put|add|paste|fill|same|test|fake|"
    r"dummy|mock"
)
_NOUNS = re.compile(
    r"api|key|keys|token|secret|password|passwd|pwd|pass|auth|access|value|here|client|"
    r"credential"
)
_EMPTY_WORDS = re.compile(
    r"none|null|nil|undefined|true|false|yes|no|on|off|default|empty|unset|todo|tbd|fixme|n/a|"
    r"na|optional|required|string|str|text|bytes|byte|bool|boolean|number|integer|any|object|"
    r"unknown|void|never|auto"
)
_TYPE = re.compile(
    r"(?:[uif]|u?int|float|utf-?|base|sha-?|md|aes-?|rsa-?|ed|hs|rs|es|ps|argon|pbkdf|bcrypt|scrypt|latin|oauth|v|x)"
    r"-?\d+(?:array|bytes?|_t|\[\])*",
    re.IGNORECASE,
)
_PARTS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_CLASS_RUNS = re.compile(r"[a-z]+|[A-Z]+|\d+")
_HEX = re.compile(r"[0-9a-fA-F]+")
_SIGNS = re.compile(r"[!@#$%^&*+=~]")
_STRETCH = re.compile(r"[A-Za-z0-9]+")
# Written in groups, as licence keys are: 4PZKZIW-CEYVIWU-VM4LGA6.
_GROUPED = re.compile(r"[A-Z0-9]{4,8}(?:-[A-Z0-9]{4,8}){2,}")
_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*(?:(?:\.|::|->|-)[A-Za-z_$][\w$]*)*")
# Which letter follows which in nine tenths of the pairs in words and names, and in a quarter of those drawn at random.
_PAIRS = re.compile(
    r"a[bcdgilmnprstu]|b[aelou]|c[aehiklortu]|d[aeiosu]|e[acdeflmnprstvx]|f[aefiou]|g[ei]|h[aeio]|i[abcdefglmnoprstv]|ke"
    r"|l[adeilostuy]|m[aeimop]|n[acdefginostu]|o[cdlmnoprstuvw]|p[aeiloprty]|qu|r[adegimnorstuy]|s[acehiopstuy]"
    r"|t[aehiorstuy]|u[elmnprst]|v[aei]|w[ahi]|x[pt]|yp|ze"
)


def is_stand_in(value: str) -> bool:
    """Whether a value is a placeholder for a secret: `your-api-key`, `${VAR}`, `<token>`, `****`, `changeme`."""
    bare = value.strip("\"'`,;:.!?()")
    if len(set(bare.lower())) < 2 or _EMPTY_WORDS.fullmatch(bare.lower()):
        return True
    return bool(_REFERENCE.match(value) or _TYPE.fullmatch(bare)) or _is_said(value)


def is_filler(body: str) -> bool:
    """Whether the body of a well-formed key is a placeholder: `xxxxxxxx`, `0000…`, `your-key-here`."""
    rest = body.strip("-_=.")
    return (len(set(rest)) < 2 and rest[:1] in "xX0*.") or _is_said(body)


def _is_said(value: str) -> bool:
    if _BLOTTED.search(value) or _SAID.search(value):
        return True
    words = [word.lower() for word in _SPELLED.findall(value)]
    return len(words) > 1 and bool(_OPENERS.fullmatch(words[0])) and any(_NOUNS.fullmatch(word) for word in words[1:])


def is_uuid(value: str) -> bool:
    return bool(_UUID.fullmatch(value))


def is_identifier(value: str) -> bool:
    """Whether a value can be a name in code, dotted and dashed names included."""
    return bool(_IDENTIFIER.fullmatch(value))


def _pairs(parts: list[str]) -> tuple[int, int]:
    """Count the pairs of letters in the parts, and those of them that are common in words."""
    pairs = [part[i : i + 2].lower() for part in parts for i in range(len(part) - 1) if part.isalpha()]
    return len(pairs), sum(_PAIRS.fullmatch(pair) is not None for pair in pairs)


def is_wordy(value: str) -> bool:
    """Whether a value reads as words, as names, slugs and sentences do, with or without digits."""
    parts = _PARTS.findall(value)
    length, (pairs, common) = sum(map(len, parts)), _pairs(parts)
    return length == 0 or (common >= 0.6 * pairs and pairs >= 0.4 * length)


def class_switches(value: str) -> int:
    """Count the changes between lower-case letters, capitals and digits in a value."""
    return len(_CLASS_RUNS.findall(value)) - 1


def looks_random(value: str) -> bool:
    """Whether a value looks randomly generated, judged by its longest run of letters and digits."""
    value = value.replace("-", "") if _GROUPED.fullmatch(value) else value
    stretch = max(_STRETCH.findall(_SIGNS.sub("", value)), key=len, default="")
    parts = _PARTS.findall(stretch)
    length, digits = len(stretch), sum(len(part) for part in parts if part.isdigit())
    if length < 8 or len(set(stretch)) < 5 or digits == length or "abcdefgh" in stretch.lower():
        return False
    pairs, common = _pairs(parts)
    if digits == 0:
        return length >= 16 and common < (0.6 if len(parts) >= 4 else 0.45) * pairs
    switches = sum(a.isdigit() != b.isdigit() for a, b in itertools.pairwise(parts))
    if (switches >= 3 and length <= 3.2 * len(parts)) or (length >= 16 and _HEX.fullmatch(stretch)):
        return True
    return common < (0.6 if length >= 16 else 0.5) * pairs or (len(parts) >= 4 and length <= 2.6 * len(parts))
