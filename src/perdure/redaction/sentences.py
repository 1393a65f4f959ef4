"""Secrets in a sentence about a credential: a random value near a word for one, in about 25 languages.

Random-looking values are searched first, then the words near them: few texts have such values, and their search is the
same for all languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.redaction.entropy import is_filler, is_stand_in, is_uuid, is_wordy, looks_random
from perdure.redaction.names import is_harmless_key, is_harmless_token, is_random
from perdure.redaction.scan import SHORTEST_RUN, ScanText, Secret

# Words for a credential. Stems are open in languages whose endings differ by case and number.
_OPENS = r"""
tokens?|secrets?|passwords?|passwd|passphrases?|passcode|pwd?|credentials?|creds|pat|jwt
|(?:[^\W\d_]*)(?:passwort|kennwort)\w{0,2}|zugangsdaten|jetons?|mots?\ de\ passe|contrase[ñn]as?|senhas?
|wachtwoord(?:en)?|has[łl][oaeu]\w{0,2}|парол\w{1,4}|токен\w{0,3}|секрет\w{0,3}|lösenord\w{0,4}|passord\w{0,3}|adgangskode\w{0,2}
|salasana\w{0,3}|hesl[oaue]\w{0,2}|parol[aeo]\w{0,2}|[şs]ifre\w{0,4}|jelszó\w{0,3}|kata\ sandi|mật\ khẩu|gettone
|密[码碼钥鑰]|秘[钥鑰]|口令|令牌|トークン|パスワード|シークレット|비밀번호|토큰|패스워드|비밀키|كلمة\ المرور|סיסמה
"""
# Words for a key, which may be a credential or the name of a stored item.
_KEYS = r"""
keys?|(?:[^\W\d_]*)schlüssel\w{0,2}|clés?|claves?|chaves?|chiav[ei]|sleutels?|klucz\w{0,3}|ключ\w{0,3}|nyckel\w{0,2}
|nøgle\w{0,2}|nøkkel\w{0,2}|avain|avaime\w{1,3}|kl[ií]č\w{0,2}|kľúč\w{0,2}|kulcs\w{0,2}|kunci|anahtar\w{0,3}|chei[ea]\w{0,2}
|(?<![ァ-ヶー])キー(?![ァ-ヶー])|(?<![가-힣])키(?![가-힣]{3})|مفتاح|מפתח
"""
_NOUN = re.compile(
    rf"(?<![A-Za-z0-9_./$@#&-])(?:(?P<compound>[^\W\d_]{{1,20}})-)?(?:(?P<key>{_KEYS})|(?P<opens>{_OPENS}))(?![A-Za-z0-9_-])",
    re.VERBOSE | re.IGNORECASE,
)
_VALUE = re.compile(r"[A-Za-z0-9+/=_~.|:%@!$^&*-]+")
_EDGE = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/=_~.|:%@!$^&*-"
_QUOTE_OPEN, _QUOTE_CLOSE = "[\"'“‘「『`*_(<]{0,3}", "[\"'”’」』`*_)>]{0,3}"
_WORD = r"[^\W\d_][\w'’/-]{0,20}"
# Particles of scripts without spaces.
_PARTICLE = r"[^\x00-\x7f]{0,10}"
_JOINT = r"(?:[:：=＝→]|->|=>|[—–-](?=[ ]))"
_NOUN_TO_VALUE = re.compile(
    rf"{_QUOTE_CLOSE}(?P<words>(?:[ ]?\([^()\n]{{1,40}}\))?{_PARTICLE}(?:,?[ ]{{1,2}}{_WORD}){{0,6}})[ ]{{0,2}}"
    rf"(?P<joint>[,，]|{_JOINT})?[ ]{{0,4}}{_QUOTE_OPEN}"
)
_VALUE_TO_NOUN = re.compile(
    rf"{_QUOTE_CLOSE}[ ]{{0,2}}(?:[,，(—–-][ ]{{0,2}})?(?P<words>(?:{_WORD}[ ]{{1,2}}){{0,4}}{_PARTICLE}[ ]{{0,2}})"
)
_SENTENCE_END = re.compile(r"[.!?](?=[ ])|[。！？\n|│\t]|;[ ]")
# Says that the value is what the noun is: `use value as the token`, `value is the key`.
_IS = re.compile(
    r"(?:as|is|was|are|als|ist|war|comme|est|como|es|é|come|è|jako|to|как|это|som|är|er|on|olarak|sebagai|作为|作為|は|が|を"
    r"|for|that|which|where|into|here|这个|這個|是)\b|作",
    re.IGNORECASE,
)
# What a value is when it is not the credential itself.
_OTHER = re.compile(
    r"(?<![^\W_])(?:hash(?:es|ed)?|sha-?\d*|md5|digests?|checksums?|fingerprints?|thumbprint|ids?|identifier|uuids?|guid|public"
    r"|pub|publishable|name[sd]?|urls?|uri|path|files?|filename|arn|versions?|prefix|suffix|commits?|revisions?|reverts?|merge"
    r"|length|counts?|type|cach[eé][ds]?|caching|к[эе]ш\w{0,2}|缓存|快取|キャッシュ|캐시|etag|idempotency|nonce|salt|trace|span|requests?|builds?|images?|layers?|digest"
    r"|branch|tag|patch|snapshot|blob|signature|signatures|signed|transaction|tx|block|address|contract|since|author"
    r"|ssh|ssh-rsa|gpg|pgp|rsa|kms|apt|pubkey|keyserver|keyring|known_hosts|host|licen[cs]e[ds]?|integrity|lockfile)(?![^\W_])",
    re.IGNORECASE,
)
# Words near a key that is the name of a stored item: where the item is, and what is done with it.
_FINDS = re.compile(
    r"(?<![^\W_])(?:stored?|stores|redis|memcached?|etcd|consul|s3|gcs|r2|bucket|objects?|rows?|records?|items?|entry|entries"
    r"|look(?:s|ed)?[ ]?ups?|evict(?:s|ed|ing)?|insert(?:s|ed|ing)?|duplicates?|shards?|partitions?|tables?|columns?"
    r"|index(?:es)?|documents?|queues?|topic|kafka|dict(?:ionary)?|prim[aäá]i?ri?\w{0,3}|первичн\w{2}|maps?|mapping|json|yaml|sort(?:ed|s)?|group(?:ed)?|lock(?:ed|s)?"
    r"|hit|miss|miss(?:es|ing)|exists?|found|primary|foreign|unique|ttl|values?|bytes|size|node|tree|bind|nodes|leaf|press"
    r"|translation|locale|feature|flag|metric|label|component|dedup\w*|artifacts?|pods?|namespace|annotation|routing"
    r"|(?-i:DEL|HGET|HSET|SET|GET|PUT|SCAN|SETEX|EXPIRE))(?![^\W_])",
    re.IGNORECASE,
)
# Before `key`: the location of an item, not the use of a credential.
_PLACED = re.compile(
    r"(?:under|at|by|for|of|in|per|on|from|unter|sous|bajo|sob|sotto)[ ]+(?:the[ ]+|each[ ]+)?$", re.IGNORECASE
)
_HEX = re.compile(r"[0-9a-fA-F]+")
_FILE = re.compile(r"\.[A-Za-z]{1,5}\d?$|^\.|//|^/|^~|@")
_IN_ADDRESS = ("?", "#", "&", "\\", ",")
# A setting (`trace_id=…`), a hash by its algorithm, the address of an account.
_MARKED = re.compile(r"(?P<name>[A-Za-z][\w.-]{1,30})[=:]|-{0,2}(?:sha\d|md5|hash)|0x[0-9a-fA-F]{40}$")
# A field of structured data, whose name alone is judged (`assignments.py`): `"token": "…"`, `<li key="…">`.
_FIELD = re.compile(r"[\"'][ ]?[:=]|=[\"'{]")
# Words before a hash: `linux-node-3f0c…`.
_SLUG = re.compile(r"(?:[A-Za-z][A-Za-z0-9]*[-_]){1,4}[0-9a-f]{8,}")
_LONGEST = 300
_SHORTEST, _SHORTEST_HEX = SHORTEST_RUN, 24
_BEFORE, _AFTER = 120, 64


# A part of every noun in ASCII; `?` is any other character.
_STEM = re.compile(
    rb"key|token|secret|pass|pwd?|cred|pat|jwt|kennw|zugang|jeton|senha|contras|wachtw|has[l?]|adgangsk|salas|hesl|parol|sifre"
    rb"|jelsz|sandi|gettone|cl[a?]|cha?ve|chiav|sleutel|kl[ui?]|nyckel|avai|kulcs|kunci|anahtar|chei|\?"
)
# Drawn at random: a letter between digits, or capitals and small letters in turns.
_DRAWN = re.compile(rb"[0-9][A-Za-z]+[0-9]|[a-z][A-Z]+[a-z]{1,3}[A-Z]+[a-z]|[A-Z]{2}[a-z]{1,3}[A-Z]|[0-9][a-z]*[A-Z]")


def sentence_secrets(scan: ScanText) -> Iterator[Secret]:
    """Yield random-looking values next to a word for a credential in the same sentence."""
    done = 0
    for start, end in scan.mixed_runs:
        if start < done or end - start > _LONGEST:
            continue
        if _DRAWN.search(scan.raw, start, end) is None:
            continue
        if _STEM.search(scan.lower, max(0, start - _BEFORE), start) or _STEM.search(scan.lower, end, end + 2 * _AFTER):
            secret = _secret_at(scan, start)
            if secret is not None:
                yield secret
                done = secret.end


def _secret_at(scan: ScanText, at: int) -> Secret | None:
    text = scan.text
    lead = scan.raw[max(0, at - _LONGEST) : at]
    start = at - len(lead) + len(lead.rstrip(_EDGE))
    # In `key=value` and `key:value` the sign belongs to the noun.
    named = re.match(r"[^\W\d_]{2,14}[=:](?=[^=:/])", text[start : at + 1])
    if text[max(0, start - 1) : start] in _IN_ADDRESS:
        return None
    start += named.end() if named is not None else 0
    match = _VALUE.match(text, start, start + _LONGEST + 1)
    if match is None:
        return None
    start += len(match[0]) - len(match[0].lstrip("*:=.!|&%"))
    value = match[0].strip("*:.!|&%").lstrip("=")
    if len(value) > _LONGEST:
        return None
    if not _is_drawn(value):
        return None
    first, last = _sentence(text, start, start + len(value))
    before, after = text[first:start], text[start + len(value) : last]
    if _has_noun(before, after, value) and not scan.is_inside_blob(start):
        return Secret("credential", start, start + len(value))
    return None


def _sentence(text: str, start: int, end: int) -> tuple[int, int]:
    first, last = max(0, start - _BEFORE), min(len(text), end + _AFTER)
    for match in _SENTENCE_END.finditer(text, first, start):
        first = match.end()
    after = _SENTENCE_END.search(text, end, last)
    return first, after.start() if after is not None else last


def _has_noun(before: str, after: str, value: str) -> bool:
    """Whether the words on either side mark the value as a credential."""
    nouns = list(_NOUN.finditer(before))
    if nouns and _names_the_value(before, nouns[-1], after, value):
        return True
    noun = _NOUN.search(after[:48])
    if noun is None or _OTHER.search(before[-24:]) or _OTHER.search(after[: noun.end() + 14]):
        return False
    gap = _VALUE_TO_NOUN.fullmatch(after, 0, noun.start())
    if gap is None or _is_other(after, noun) or (noun["key"] and _FINDS.search(before[-40:] + after)):
        return False
    return _IS.match(gap["words"]) is not None or (not gap["words"] and not _is_plain(value))


def _names_the_value(before: str, noun: re.Match[str], after: str, value: str) -> bool:
    gap = _NOUN_TO_VALUE.fullmatch(before, noun.end())
    if gap is None or _OTHER.search(gap["words"]) or _is_other(before, noun) or _FIELD.match(before, noun.end()):
        return False
    if gap["words"].count(" ") > 2 and gap["joint"] is None and not _IS.match(gap["words"].rsplit(None, 1)[-1]):
        return False
    if noun["key"] is None:
        return not _OTHER.search(before[: noun.start()][-16:])
    if _FINDS.search(before[: noun.start()][-60:]) or _FINDS.search(gap["words"]) or _FINDS.search(after[:24]):
        return False
    if _OTHER.search(before[: noun.start()][-40:]):
        return False
    if not _is_plain(value):
        return True
    # A hash or an id may be the name of an item: the sentence must say that it is used, or whose it is.
    lead, sign = before[: noun.start()], before[noun.end() : noun.end() + 1]
    is_field = sign == "=" or (sign == ":" and (lead != "" or _SLUG.fullmatch(value)) and not lead.strip(" -"))
    return not is_field and not _PLACED.search(lead)


def _is_plain(value: str) -> bool:
    """Whether the value could as well be a hash or an id as a key."""
    return is_uuid(value) or _HEX.fullmatch(value) is not None or _SLUG.fullmatch(value) is not None


def _is_other(text: str, noun: re.Match[str]) -> bool:
    """Whether the word before the noun makes it something else: `cache key`, `page token`."""
    words = text[: noun.start()].split()
    qualifier = noun["compound"] or (words[-1].strip("*_`\"'“(") if words else "")
    return is_harmless_key(qualifier) if noun["key"] else is_harmless_token(qualifier)


def _is_drawn(value: str) -> bool:
    marked = _MARKED.match(value)
    if marked is not None and (marked["name"] is None or is_wordy(marked["name"])):
        return False
    if _FILE.search(value) or is_stand_in(value) or is_filler(value) or "example" in value.lower():
        return False
    if is_uuid(value):
        return True
    if _HEX.fullmatch(value):
        return len(value) >= _SHORTEST_HEX and looks_random(value)
    return len(value) >= _SHORTEST and is_random(value)
