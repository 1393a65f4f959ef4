"""Tell what a later statement of the user does to an earlier one: replaces it, may change it, or neither.

Both are compared by their content words (stems; pairs of characters in Chinese and Japanese), by the values they give
(numbers, languages), by whether they forbid or ask for something, and by words of revocation, permission and change.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from perdure.context.user_text.alternatives import compile_alternatives

Effect = Literal["replaces", "may change"]

_LONGEST = 500
# The newest statements are compared with each other.
_MOST = 600
# An earlier statement is about the same by this share of its content words; with less, only perhaps.
_SAME_SHARE = 0.5
_SIMILAR_SHARE = 0.3
# The key of all statements that name a language.
_ANY_LANGUAGE = "a language"
# A word in more than this share of the statements, and in more than a few, says nothing about which is meant.
_COMMON_SHARE = 0.2
_FEW = 3

# Takes back what was said, whatever that was.
_REVOKES = compile_alternatives(
    r"\b(?:tak(?:e|ing) (?:\S+ ){0,4}back|took (?:\S+ ){0,3}back|forget (?:about |the |that |my |what )"
    r"|(?:ignore|disregard|drop|scrap|scratch|cancel|withdraw|revoke|rescind|retract|undo|lift|relax|waive|skip)"
    r" (?:the|that|my|this|what|our|all)\b"
    r"|no longer|(?:not|n['’]t|never)\b.{0,60}\b(?:any ?more|any longer)|never mind"
    r"|(?:is|are|was|has been|have been) (?:now )?(?:lifted|off the table|void|gone|over|obsolete|history|cancell?ed"
    r"|dropped|revoked|withdrawn|retired|repealed|moot|outdated|overturned|superseded|dead)"
    r"|change of plans?|changed? (?:my|our) minds?|i was wrong about"
    r"|(?:rule|ban|limit|freeze|restriction|policy|requirement|convention)s?\b.{0,30}"
    r"\b(?:off|ends?|ended|expired?|gone|dead|over|out)\b"
    # German
    r"|gilt (?:ab \w+ |jetzt |nun )?nicht(?: mehr)?|nicht mehr|kein\w* \w+ mehr|vergiss|vergessen wir|aufgehoben"
    r"|hinfällig|(?:nehme|ziehe|nimm)\b.{0,40}\bzurück|zurückgenommen|widerrufe|überholt|entfällt|doch (?:lieber"
    r"|wieder|nicht)"
    # French
    r"|ne (?:vaut|tient|s'applique|compte) plus|n'est plus|ne sont plus|oublie|annule|je reviens sur|je retire"
    r"|laisse tomber|levée?s?|changement de programme|finalement|caduque?"
    # Spanish
    r"|ya no|olvida|olvídate|anula|anulad[oa]|retiro|cambio de planes|queda sin efecto|al final)\b"
    r"|\b(?:n['’e]|ne )\w*.{0,40}\bplus\b"
    r"|作废|取消|不再|收回|撤回|撤销|算了|改回|废止|失效|不算数|解除|取り消|取消|撤回|廃止|無効|なかったこと|やめ(?:ます|よう|て|に)"
    r"|忘れて|もう.{0,20}(?:ない|いりません|不要)|취소|철회|해제|무효|더 이상",
    re.IGNORECASE,
)
# Ends a habit: the opposite of an order to do something, not of a prohibition.
_STOPS = compile_alternatives(
    r"\b(?:stop|quit|cease|no more|no need to|(?:need|have) to .{0,40}any ?more|needn['’]t|don['’]t (?:have|need) to"
    r"|hör auf|keine?n? .{1,40} mehr|brauchst .{0,40} nicht|arrête"
    r"|plus besoin|plus de|deja de|ya no)\b|不用|不必|不要再"
    r"|(?:なく|しなく)て(?:も)?(?:いい|よい|結構)|안 해도|그만",
    re.IGNORECASE,
)
# Allows what was forbidden.
_PERMITS = compile_alternatives(
    r"\b(?:(?:is|are|would be|will be|'s|['’]re) (?:\w+ )?(?:fine|ok|okay|allowed|permitted|welcome|acceptable"
    r"|alright|all right|good to go|possible|open|free|back|safe)"
    r"|you (?:may|can|are (?:free|allowed|welcome) to)|feel free|go ahead|(?:i|we) (?:don['’]t|no longer) mind"
    r"|fair game"
    r"|(?:darfst|dürfen|darf|kannst|können)|erlaubt|in ordnung|wieder (?:möglich|frei)"
    r"|(?:tu|vous) (?:peux|pouvez)|on peut|autorisée?s?|permise?s?|d'accord|acceptable|puedes|se puede"
    r"|permitid[oa]s?)\b"
    r"|可以|允许|没问题|都行|也行|て(?:も)?(?:いい|よい|構い|かまい|大丈夫)|許可|解禁|(?:해도|써도|어도"
    r"|아도) (?:돼|됩|괜찮|좋)",
    re.IGNORECASE,
)
# Says that something is another way now.
_CHANGES = compile_alternatives(
    r"\b(?:now|from now on|from here on|actually|instead|rather|again|after all|as of|starting|these days"
    r"|switch\w*|mov(?:e|ed|ing) (?:to|over)|chang(?:e|ed|es)|updat(?:e|ed)|raised?|lowered|increased|extended"
    r"|replac\w+"
    r"|erlaubt|allowed|permitted|fine|okay?"
    r"|up to|correction|on second thought|make (?:that|it)|"
    r"jetzt|nun|doch|lieber|statt\w*|stattdessen|wieder|ab (?:sofort|jetzt|heute)|künftig|sondern"
    r"|maintenant|désormais|plutôt|finalement|dorénavant|au lieu"
    r"|ahora|mejor|en (?:vez|lugar) de|a partir de)\b"
    r"|现在|还是|改|换|从今|以后|今后|これから|今後|代わり|変更|やはり|やっぱり|以降|이제|앞으로|대신|변경",
    re.IGNORECASE,
)
_NAMES_RULE = re.compile(
    r"\b(?:rules?|ban|limit|freeze|restriction|requirement|instruction|policy|convention|what i said|regel\w*|verbot"
    r"|règle|consigne|interdiction|regla|norma)\b|规则|规定|那条|要求|ルール|決まり|指示|규칙",
    re.IGNORECASE,
)
_FORBIDS = re.compile(
    r"\b(?:never|don['’]?t|do not|must(?: not|n['’]t)|not|no|nothing|nobody|avoid|without|off[- ]limits|hands off"
    r"|frozen"
    r"|forbidden|nie|niemals|kein\w*|nicht|nichts|tabu|jamais|pas|aucun\w*|ne|n|rien|interdit\w*|nunca|jamás|no|nada"
    r"|ningún\w*|prohibid\w+|stop|above|below|over|under|at most)\b|不|别|勿|禁|ない(?:で|こと)|禁止|지 ?(?:마|말)",
    re.IGNORECASE,
)
_LANGUAGE = re.compile(
    r"\b(?:(?P<en>english|englisch|anglais|inglés)|(?P<de>german|deutsch|allemand|alemán)"
    r"|(?P<fr>french|français|französisch|francés)|(?P<es>spanish|español|spanisch|espagnol)"
    r"|(?P<zh>chinese|chinesisch|chinois|chino|mandarin)|(?P<ja>japanese|japanisch|japonais|japonés)"
    r"|(?P<ru>russian|russisch|russe|ruso)|(?P<it>italian|italienisch|italien|italiano)"
    r"|(?P<pt>portuguese|portugiesisch|portugais|portugués)|(?P<ko>korean|koreanisch|coréen|coreano)"
    r"|(?P<nl>dutch|niederländisch|néerlandais)|(?P<pl>polish|polnisch|polonais))\b"
    r"|(?P<en2>英文|英语|英語)|(?P<zh2>中文|汉语|中国語)|(?P<ja2>日文|日语|日本語)|(?P<de2>德文|德语|ドイツ語)"
    r"|(?P<fr2>法文|法语|フランス語)|(?P<ko2>韩文|韩语|韓国語)",
    re.IGNORECASE,
)
_ABANDONS = re.compile(
    r"\b(?:instead of|rather than|in place of|replac(?:es|ing|e)|no longer|statt|anstatt|anstelle von|nicht mehr"
    r"|au lieu d[e']|à la place d[eu]|en lugar de|en vez de|and not|but not|, not|, no|und nicht|et (?:non|pas))\s+"
    r"([^\s,.;:!?]+(?:\s+[^\s,.;:!?]+){0,2})",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{2,40}|\d[\d.,]{0,20}")
_NUMBER = re.compile(r"(?<![\w/.-])\d[\d.,]{0,20}(?![\w/])")
# A path or an identifier is one word.
_NAME = re.compile(r"(?<![\w/.-])(?=[\w-]{0,40}(?:[/_]\w|\.[^\W\d]|[^\W\d_]\d))[\w./-]{1,120}")
_SUFFIX = re.compile(r"(?:ations?|ements?|ments?|ungen|ings?|ingly|ies|ied|ier|ern|ers?|eds?|ely|es|en|e|s|y|n|d|t)$")
_HAN_OR_KANA = re.compile(r"[㐀-鿿々]{2,}|[゠-ヿ]{2,}|[가-힯]{2,}")
_FUNCTION_CJK = re.compile(
    "以后|以後|今后|今後|从现在|从今|现在|还是|改回|改用|改成|可以|不要|不用|必须|必須|一律|总是|每次|请勿|那条|这条|作废"
    "|取消|不再|所有|全部|规则|规定|希望|统一|都用|用|都|请|别|吧|了|的|也|把|说|这个|那个|常|必|絶対|毎回|ルール|取り消|変更"
    "|항상|절대|반드시|앞으로|이제"
)
_STOP = frozenset(
    re.findall(
        r"\S+",
        """the an of to in on at by for from with without and or but not no nor so as is are was were be been
    being it its this that these those there here they them he she him her his we us our you your my me mine im
    ive id ill dont doesnt wont cant do does did done has have had having will would shall should must may might
    can could need needs want wants like please pls kindly always never ever every each all any anything
    everything everywhere anywhere nothing only just also too very more most less than then when whenever where
    while if unless until before after again now longer anymore rule rules limit ban about actually instead rather
    use using used keep make made let lets get got take back said say says what whatever which who whose how fine
    ok okay allowed permitted lifted change changed plan plans mind forget ignore drop apply applies applied one
    ing ll re ve al et cetera above below over under least up down out off upto maximum minimum per der die das
    den dem des ein eine einen einem einer eines und oder aber nicht kein keine keinen keiner mehr ist sind war
    sei wird werden wir ich du sie er es mich mir dich dir uns euch mein dein sein ihr bitte immer nie niemals ab
    jetzt nun sofort alle alles jede jeder jedes jeden mit ohne für auf am zu zum zur von vom bei doch lieber
    statt wieder noch nur auch wie wenn dann dass als gilt regel regeln erlaubt darfst darf kannst nach vor le la
    les un une de ou mais ne pas plus jamais toujours est sont sera être tu te toi vous nous je il elle ils elles
    mon ma mes ton ta tes son sa ses que qui quoi dans sur sous avec sans pour par en au aux ce cette ces aussi
    peux peut pouvez finalement règle désormais maintenant vaut chaque tous toutes tout si el los las una unos
    unas y o pero nunca siempre yo tú él ella mi su con sin para por lo se ya ahora puedes regla cada todo todos
    todas""",
    )
)


@dataclass(frozen=True, slots=True)
class _Terms:
    """What is compared of a statement."""

    stems: frozenset[str]
    numbers: frozenset[str]
    languages: frozenset[str]
    # What it names as given up ("instead of tabs").
    abandoned: frozenset[str]
    forbids: bool
    revokes: bool
    stops: bool
    permits: bool
    changes: bool
    names_rule: bool


def changes_something(sentence: str) -> bool:
    """Return whether a sentence has a word of revocation, permission or change."""
    if len(sentence) > _LONGEST:
        return False
    return any(p.search(sentence) is not None for p in (_REVOKES, _STOPS, _PERMITS, _CHANGES))


def resolve(statements: Sequence[str], seqs: Sequence[int] = ()) -> Mapping[int, tuple[int, Effect]]:
    """Return, by the index of an earlier statement, the newest later one that replaces or may change it.

    `seqs` are the positions of their messages: what one message says does not change what the same one lays down.
    """
    start = max(0, len(statements) - _MOST)
    terms = [_terms(text) for text in statements[start:]]
    spread = Counter(stem for t in terms for stem in t.stems)
    most = max(_FEW, int(_COMMON_SHARE * len(terms)))
    common = {stem for stem, times in spread.items() if times > most}
    at_word: dict[str, list[int]] = {}
    effects: dict[int, tuple[int, Effect]] = {}
    for at, later in enumerate(terms):
        keys = (later.stems - common) | later.numbers | ({_ANY_LANGUAGE} if later.languages else set())
        for earlier in sorted({n for key in keys for n in at_word.get(key, ())}):
            known = effects.get(start + earlier)
            is_same_message = bool(seqs) and seqs[start + at] == seqs[start + earlier] >= 0
            if is_same_message or (known is not None and known[1] == "replaces"):
                continue
            if (effect := _effect(later, terms[earlier], common)) is not None:
                effects[start + earlier] = start + at, effect
        for key in keys:
            at_word.setdefault(key, []).append(at)
    return effects


def _effect(later: _Terms, earlier: _Terms, common: Set[str]) -> Effect | None:
    """Return what a statement does to an earlier one that it shares a word with."""
    stems = ((earlier.stems - common) or earlier.stems) | (earlier.numbers & later.numbers)
    shared = len(stems & (later.stems | later.numbers))
    share = shared / len(stems) if stems else 0.0
    is_other_language = bool(later.languages and earlier.languages) and later.languages.isdisjoint(earlier.languages)
    is_other_number = bool(later.numbers and earlier.numbers) and later.numbers.isdisjoint(earlier.numbers)
    is_opposite = earlier.forbids != later.forbids
    gives_up = bool(later.abandoned & stems) and not earlier.forbids
    has_change = later.revokes or later.changes or later.permits or later.stops
    if share >= _SAME_SHARE:
        takes_back = later.revokes or (later.stops and not earlier.forbids)
        if takes_back or (later.permits and earlier.forbids and later.changes):
            return "replaces" if share > _SAME_SHARE or later.names_rule else "may change"
        if later.permits and earlier.forbids:
            return "may change"
        if gives_up or (is_other_language and later.changes):
            return "replaces"
        is_same_thing = earlier.stems <= later.stems
        if is_other_number and (is_same_thing or (share == 1.0 and later.changes)):
            return "replaces"
        if is_other_number and later.changes:
            return "may change"
        is_mostly_about_it = shared >= _SIMILAR_SHARE * len(later.stems)
        if is_other_language or (is_mostly_about_it and later.changes and is_opposite):
            return "may change"
        if earlier.permits and later.forbids:
            return "may change"
    elif later.revokes and later.names_rule and shared:
        return "replaces" if share >= _SIMILAR_SHARE else "may change"
    elif gives_up and share >= _SIMILAR_SHARE:
        return "replaces" if later.changes else "may change"
    elif is_other_language and later.changes and (not stems or not later.stems):
        return "may change"
    is_similar = share >= _SIMILAR_SHARE and has_change
    return "may change" if is_similar and (later.revokes or (later.permits and earlier.forbids) or gives_up) else None


@lru_cache(maxsize=2_048)
def _terms(text: str) -> _Terms:
    text = text[:_LONGEST]
    languages = frozenset((m.lastgroup or "").rstrip("2") for m in _LANGUAGE.finditer(text))
    plain = _LANGUAGE.sub(" ", text)
    found = _find_stems(plain) or (_find_stems(text) if not languages else frozenset())
    return _Terms(
        found,
        frozenset(n.rstrip(".,") for n in _NUMBER.findall(text)),
        languages,
        frozenset(stem for m in _ABANDONS.finditer(plain) for stem in _find_stems(m[1])),
        _FORBIDS.search(text) is not None,
        _REVOKES.search(text) is not None,
        _STOPS.search(text) is not None,
        _PERMITS.search(text) is not None,
        _CHANGES.search(text) is not None,
        _NAMES_RULE.search(text) is not None,
    )


def _find_stems(text: str) -> frozenset[str]:
    names = _NAME.findall(text)
    plain = _NAME.sub(" ", text) if names else text
    words = (w.lower() for w in _WORD.findall(plain) if w.isascii() or not _HAN_OR_KANA.search(w))
    stems = {_stem(w) for w in words if w not in _STOP and not w[0].isdigit()}
    stems.update(name.lower().strip("./-") for name in names)
    if not text.isascii():
        stems.update(_pairs(_HAN_OR_KANA.findall(_FUNCTION_CJK.sub(" ", text))))
    return frozenset(stems)


def _pairs(runs: Iterable[str]) -> Iterable[str]:
    """Yield a word in Katakana or Hangul as it is, and the pairs of characters of a run of Han."""
    for run in runs:
        if run[0] >= "㐀" and run[0] < "가":
            yield from (run[n : n + 2] for n in range(len(run) - 1))
        else:
            yield run


def _stem(word: str) -> str:
    for _ in range(2):
        shorter = _SUFFIX.sub("", word)
        if len(shorter) < 4 or shorter == word:
            break
        word = shorter
    return word[:6]
