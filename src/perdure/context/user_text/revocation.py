"""Tell what a later statement of the user does to an earlier one: replaces it, may change it, or neither.

Both are compared by their content words (stems; pairs of characters in Chinese and Japanese), by the values they give
(numbers, languages), by whether they forbid or ask for something, and by words of revocation, permission and change.
A statement replaces an earlier one only where that is certain: it has no condition, it names everything that the
earlier one names, and nothing else. What somebody else says or does changes nothing.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from perdure.context.user_text.alternatives import compile_alternatives
from perdure.context.user_text.reported_speech import reports_others

Effect = Literal["replaces", "may change"]

_LONGEST = 500
# The newest statements are compared with each other.
_MOST = 600
# A statement is about an earlier one if it has this share of its content words; with less, only perhaps.
_SAME_SHARE = 0.5
_SIMILAR_SHARE = 0.3
# Stems that differ in the last letter alone are the same from this length on ("envoie", "envoyer").
_FUZZY_CHARS = 4
# The key of all statements that name a language.
_ANY_LANGUAGE = "a language"
# A word in more than this share of the statements, and in more than a few, is no evidence of which is meant.
_COMMON_SHARE = 0.2
_FEW = 3

# Takes back an earlier statement, whatever it was.
_REVOKES = compile_alternatives(
    r"\b(?:tak(?:e|ing) (?:\S+ ){0,4}back|took (?:\S+ ){0,3}back|forget (?:about |the |that |my |what )"
    r"|(?:ignore|disregard|drop|scrap|scratch|cancel|withdraw|revoke|rescind|retract|undo|lift|relax|waive|skip)"
    r" (?:the|that|my|this|what|our|all)\b"
    r"|no longer|(?:not|n['’]t|never)\b.{0,60}\b(?:any ?more|any longer)|never mind"
    r"|(?:is|are|was|has been|have been) (?:now )?(?:lifted|off the table|void|gone|obsolete|cancell?ed|dropped|revoked"
    r"|withdrawn|repealed|moot|outdated|overturned|superseded)"
    r"|change of plans?|changed? (?:my|our) minds?|i was wrong about"
    r"|(?:rule|ban|limit|freeze|restriction|policy|requirement|convention)s? (?:is|are|has|have)\b.{0,20}"
    r"\b(?:off|ended|expired|gone|over)\b"
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
    r"\b(?:instead of|rather than|in place of|replac(?:es|ing|e)|no longer|forget|statt|anstatt|anstelle von|nicht mehr"
    r"|au lieu d[e']|à la place d[eu]|en lugar de|en vez de|and not|but not|, not|, no|und nicht|et (?:non|pas))\s+"
    r"([^\s,.;:!?]+(?:\s+[^\s,.;:!?]+){0,2})",
    re.IGNORECASE,
)
# A question, a wish that is not fulfilled, a story, what others do: no word of it is an instruction.
_REMARKS = compile_alternatives(
    r"[?？]|\b(?:he|she|they|who|it)(?:['’]s|['’]re|['’]ve)?\b (?:\w+ )?(?:thinks?|no longer|stopped|may|can)\b"
    r"|\bI (?:wish|wonder|thought|guess)\b|\bit would be\b|\byou thought\b"
    r"|\b(?:yesterday|last (?:week|month|year|time)|gestern|hier|ayer)\b|昨天|昨日|어제"
    r"|^(?:in|at) [\w'’ -]{2,40}['’]s (?:team|project|repo|repository|department|company)\b"
    r"|^(?:haha\w*|hehe|lol|funny)\b|\bby itself\b"
    r"|\bI (?:no longer|stopped|quit|now|can) (?!need|want|mind|require|care|insist|expect)\w",
    re.IGNORECASE,
)
# A condition, an exception, another time, a single case.
_HEDGES = compile_alternatives(
    r"\b(?:if|unless|when|once|until|till|as soon as|as long as|next|tomorrow|later|soon|some ?day|maybe|perhaps"
    r"|probably"
    r"|might|would|could|twice|three times|except|only|for now|this (?:time|one)|yet|still|but|not sure|supposing"
    r"|suppose"
    r"|imagine|(?:don['’]t|do not|never|not|didn['’]t|haven['’]t) (?:stop|forget|drop|skip|ignore|lift|take)\w*"
    r"|wenn|falls|sobald|bis|nächste\w*|morgen|vielleicht|außer|nur|ausnahmsweise|diese[nrms]? einen|noch nicht|aber"
    r"|si|quand|dès que|sauf|peut-être|prochaine?|demain|seulement|mais|cuando|excepto|salvo|solo|sólo|próxim[oa]"
    r"|mañana"
    r"|quizás?|pero)\b|如果|等|只|这一?次|這一?次|除了|明年|下次|まで|だけ|もし|場合|なら|今回|来週|来年|다음|까지만|이번",
    re.IGNORECASE,
)
# Words before the statement itself.
_LEAD_INS = re.compile(
    r"(?i)\W*(?:(?:ok(?:ay)?|so|also|and|well|yes|no|oh|then|actually|please|instead|again|correction|update"
    r"|by the way|btw|now"
    r"|from (?:now|here|today) on|as of (?:now|today)|starting (?:now|today)|change of plans?|on second thought"
    r"|I(?:['’]ve| have)? changed my mind|ab (?:jetzt|sofort)|doch|jetzt|nun|bitte|désormais|maintenant|finalement"
    r"|dorénavant|ahora|al final|(?:a partir de|desde) ahora)\b[\s,:;.!–-]*){0,4}"
)
# A subject of the third person, up to its verb, and one in German or a Romance language.
_SUBJECT = re.compile(
    r"(?i)(?!(?:you|we|I|let['’]?s|no more|there)\b)((?:[\w'’-]+ ){1,8}?)(?=(?:no longer|is|are|was|were|has|have"
    r"|had|may|can"
    r"|must|should|shall|will|would|could|does|do|did|don['’]t|doesn['’]t|do not|need|needs|needn['’]t|now"
    r"|stopped|stops"
    r"|allows?|forbids?|raised|changed?|moved|started|went|gets?|that|which|who|in|of|for|on|about|at|with)\b)"
)
_SUBJECT_ELSEWHERE = re.compile(
    r"(?i)(?:der|die|das|den|im|in der|mein|meine|unser|unsere|ein|eine|le|la|les|l['’]|un|une|mon|ma|mes|notre|dans le"
    r"|dans la|el|los|las|una|mi|mis|nuestro|nuestra|en el|en la)\s?((?:[\w'’-]+ ){1,2})"
)
_IMPERATIVE = re.compile(
    r"(?i)(?:use|keep|write|answer|reply|stop|quit|drop|forget|ignore|disregard|scrap|cancel|make|limit|go|take"
    r"|put|run|add"
    r"|show|ask|log|store|save|format|name|commit|push|test|set|round|call|talk|speak|be|do|don['’]t|never|always"
    r"|only|no"
    r"|change|switch|skip|lift|feel)\b"
)
_OTHERS_CJK = re.compile(
    "^(?:那个|这个|新来的|隔壁)?[^，。、]{0,6}(?:团队|同事|客户|银行|公司|小[王李张]|老板|供应商)|^.{0,8}(?:チーム|同僚|お客様|顧客|銀行|会社|上司)"
    "|^.{0,6}(?:팀|동료|고객|은행|회사|상사)(?:은|는|이|가)"
)
_WORD = re.compile(r"[^\W\d_]{2,40}|\d[\d.,]{0,20}")
_NUMBER_CJK = re.compile("[一二三四五六七八九十百]{1,4}(?=[文句行字个個件条点])")
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


# Verbs that name no particular work, and the words of revocation and permission themselves.
_NEUTRAL_WORDS = re.findall(
    r"\S+",
    """run runs running write writes written put add do work first second twice require requires required requirement
    necessary longer stop stops stopped scrap scratch drop dropped cancel withdraw revoke lift waive skip ignore
    disregard correction switch moved go going again permit permitted allow okay free welcome like freeze restriction
    convention
    policy instruction applies void obsolete gone off takes taken about touch wait today right new now
    schreib schreibe schreiben verwende verwenden benutze nutze lieber sofort
    einbauen darfst brauchst musst aufgehoben utilise utiliser utilisez écris mets mettre nouveau consigne interdiction
    applique tiens usa usar utiliza escribe hace falta vuelve olvida norma desde""",
)
_NUMBER_WORDS = {
    word: str(number)
    for language in (
        "one two three four five six seven eight nine ten",
        "eins zwei drei vier fünf sechs sieben acht neun zehn",
        "un deux trois quatre cinq six sept huit neuf dix",
        "uno dos tres cuatro cinco seis siete ocho nueve diez",
    )
    for number, word in enumerate(re.findall(r"\w+", language), start=1)
}


@dataclass(frozen=True, slots=True)
class _Terms:
    """What is compared of a statement."""

    stems: frozenset[str]
    # The stems, and what they have in common with other forms of their words.
    forms: frozenset[str]
    # The stems of its subject.
    topic: frozenset[str]
    # The stems of a subject in the third person; None where it has none.
    subject: frozenset[str] | None
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
    is_remark: bool
    is_hedged: bool


def changes_something(sentence: str) -> bool:
    """Return whether a sentence has a word of revocation, permission or change, and is not about what others say."""
    if len(sentence) > _LONGEST or _is_remark(sentence):
        return False
    return any(p.search(sentence) is not None for p in (_REVOKES, _STOPS, _PERMITS, _CHANGES))


def resolve(statements: Sequence[str], sources: Sequence[int | None] = ()) -> Mapping[int, tuple[int, Effect]]:
    """Return, by the index of an earlier statement, the newest later one that replaces or may change it.

    `sources` are the positions of their messages, None where that is not known: what one message says does not change
    what the same one lays down.
    """
    start = max(0, len(statements) - _MOST)
    terms = [_terms(text) for text in statements[start:]]
    places = tuple(sources[start:]) or (None,) * len(terms)
    spread = Counter(stem for t in terms for stem in t.stems)
    most = max(_FEW, int(_COMMON_SHARE * len(terms)))
    common = {stem for stem, times in spread.items() if times > most}
    at_word: dict[str, list[int]] = {}
    effects: dict[int, tuple[int, Effect]] = {}
    for at, later in enumerate(terms):
        keys = {s[:_FUZZY_CHARS] if s.isalpha() else s for s in later.stems - common} | later.numbers
        keys |= {_ANY_LANGUAGE} if later.languages else set()
        candidates = sorted({n for key in keys for n in at_word.get(key, ())}) if not later.is_remark else []
        named = [n for n in candidates if _names(later, terms[n])] if later.names_rule and later.revokes else []
        for earlier in candidates:
            known = effects.get(start + earlier)
            is_same_message = places[at] is not None and places[at] == places[earlier]
            if is_same_message or (known is not None and known[1] == "replaces"):
                continue
            # Of several that a statement names in part, none is certainly meant.
            if _replaces(later, terms[earlier]) or named == [earlier]:
                effects[start + earlier] = start + at, "replaces"
            elif _may_change(later, terms[earlier], common):
                effects[start + earlier] = start + at, "may change"
        for key in keys:
            at_word.setdefault(key, []).append(at)
    return effects


def _replaces(later: _Terms, earlier: _Terms) -> bool:
    """Return whether a statement certainly takes an earlier one back or gives it another value.

    It names every word of the earlier one, and no other but a new value in the place of what it gives up.
    """
    if later.is_hedged or not _includes(later.forms, earlier.topic):
        return False
    others = [stem for stem in later.topic if not _has(earlier.forms, stem)]
    given_up = later.abandoned & (earlier.topic - earlier.abandoned)
    if given_up and not earlier.forbids:
        return not others or (len(others) == 1 and later.subject is None)
    if given_up and later.abandoned and earlier.abandoned:
        return not others
    if others or not (earlier.topic or earlier.languages):
        return False
    if later.languages - earlier.languages and earlier.languages:
        return later.changes
    if earlier.languages - later.languages:
        return False
    if earlier.numbers and later.numbers - earlier.numbers:
        return later.changes or earlier.topic == later.topic
    if earlier.forbids and later.permits:
        return later.changes or later.revokes
    return later.revokes or (later.stops and not earlier.forbids)


def _names(later: _Terms, earlier: _Terms) -> bool:
    """Return whether a statement that revokes a rule names this one by some of its words, and by no others."""
    if later.is_hedged:
        return False
    is_value = bool(later.numbers) and later.numbers <= earlier.numbers
    named = later.topic | later.languages
    words = earlier.topic | earlier.languages
    if not (named or is_value) or later.numbers - earlier.numbers:
        return False
    if not _includes(earlier.forms | earlier.languages, named):
        return False
    return is_value or len(named) >= _SAME_SHARE * len(words)


def _has(forms: Set[str], stem: str) -> bool:
    """Return whether a stem, or one that differs in its last letter alone, is among forms."""
    return stem in forms or (len(stem) > _FUZZY_CHARS and stem[:-1] in forms and stem.isalpha())


def _list_forms(stems: Set[str]) -> frozenset[str]:
    return frozenset(stems) | {s[:-1] for s in stems if len(s) > _FUZZY_CHARS and s.isalpha()}


def _includes(forms: Set[str], stems: Iterable[str]) -> bool:
    return all(_has(forms, stem) for stem in stems)


def _may_change(later: _Terms, earlier: _Terms, common: Set[str]) -> bool:
    """Return whether a statement is about an earlier one that it shares a word with, and may change it."""
    if later.subject is not None and not later.names_rule and not any(_has(earlier.forms, s) for s in later.subject):
        return False  # what others do
    stems = ((earlier.stems - common) or earlier.stems) | (earlier.numbers & later.numbers)
    shared = sum(stem in later.numbers or _has(later.forms, stem) for stem in stems)
    share = shared / len(stems) if stems else 0.0
    is_other_language = bool(later.languages and earlier.languages) and later.languages.isdisjoint(earlier.languages)
    is_other_number = bool(later.numbers and earlier.numbers) and later.numbers.isdisjoint(earlier.numbers)
    gives_up = bool(later.abandoned & stems) and not earlier.forbids
    lifts = later.permits and earlier.forbids
    if share >= _SAME_SHARE:
        is_mostly_about_it = shared >= _SIMILAR_SHARE * len(later.stems)
        is_opposite = earlier.forbids != later.forbids and is_mostly_about_it and later.changes
        is_other_value = is_other_language or (is_other_number and (later.changes or earlier.stems <= later.stems))
        if later.revokes or lifts or gives_up or is_other_value or is_opposite or (earlier.permits and later.forbids):
            return True
        return later.stops and not earlier.forbids
    if later.revokes and later.names_rule and shared:
        return True
    if is_other_language and later.changes and (not stems or not later.stems):
        return True
    has_change = later.revokes or later.changes or later.permits or later.stops
    return share >= _SIMILAR_SHARE and has_change and (later.revokes or lifts or gives_up)


def _is_remark(sentence: str) -> bool:
    if reports_others(sentence):
        return True
    return _REMARKS.search(sentence) is not None and not _ASKS_TO_STOP.match(sentence)


# A request in the form of a question.
_ASKS_TO_STOP = re.compile(
    r"(?i)^\W*(?:please |and |so )*(?:(?:can|could|would|will) you (?:please |kindly )?(?:stop|not|no longer|drop"
    r"|forget"
    r"|skip)\b|(?:kannst|könntest) du (?:bitte )?(?:aufhören|nicht mehr)\b|(?:peux|pourrais)-tu (?:arrêter|ne plus)\b"
    r"|¿?puedes dejar de\b)(?!.{0,200}\bif\b)"
)


@lru_cache(maxsize=2_048)
def _terms(text: str) -> _Terms:
    text = text[:_LONGEST]
    languages = frozenset((m.lastgroup or "").rstrip("2") for m in _LANGUAGE.finditer(text))
    plain = _LANGUAGE.sub(" ", text)
    stems = _find_stems(plain) or (_find_stems(text) if not languages else frozenset())
    words = {w for w in (m[0].lower() for m in _WORD.finditer(text)) if w in _NUMBER_WORDS}
    numbers = {n.rstrip(".,") for n in _NUMBER.findall(text)} | {_NUMBER_WORDS[w] for w in words}
    numbers.update(_NUMBER_CJK.findall(text))
    stems -= {_stem(w) for w in words}
    return _Terms(
        stems,
        _list_forms(stems),
        frozenset(s for s in stems if s not in _NEUTRAL),
        _find_subject(text),
        frozenset(numbers),
        languages,
        frozenset(stem for m in _ABANDONS.finditer(plain) for stem in _find_stems(m[1])),
        _FORBIDS.search(text) is not None,
        _REVOKES.search(text) is not None,
        _STOPS.search(text) is not None,
        _PERMITS.search(text) is not None,
        _CHANGES.search(text) is not None,
        _NAMES_RULE.search(text) is not None,
        _is_remark(text),
        _HEDGES.search(text) is not None,
    )


def _find_subject(text: str) -> frozenset[str] | None:
    """Return the stems of a subject in the third person; None where a statement addresses its reader, or in doubt."""
    lead = _LEAD_INS.match(text)
    start = lead.end() if lead is not None else 0
    if not text.isascii() and _OTHERS_CJK.match(text, start):
        return frozenset()
    match = _SUBJECT_ELSEWHERE.match(text, start) or _SUBJECT.match(text, start)
    if match is None or (match.re is _SUBJECT and _IMPERATIVE.match(text, start)):
        return None
    return _find_stems(match[1])


def _find_stems(text: str) -> frozenset[str]:
    names = _NAME.findall(text)
    plain = _NAME.sub(" ", text) if names else text
    words = (w.lower() for w in _WORD.findall(plain) if w.isascii() or not _HAN_OR_KANA.search(w))
    stems = {_stem(w) for w in words if w not in _STOP and not w[0].isdigit()}
    stems.update(name.lower().strip("./-") for name in names)
    if not text.isascii():
        plain = _NUMBER_CJK.sub(" ", _FUNCTION_CJK.sub(" ", text))
        stems.update(_pairs(_HAN_OR_KANA.findall(plain)))
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


_NEUTRAL = frozenset(map(_stem, _NEUTRAL_WORDS))
