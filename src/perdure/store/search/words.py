"""English words for ranking: which of them carry no meaning, and the inflected forms of the others.

Forms are added to a query, not to the index: the index keeps what was written, so that phrases and identifiers match
literally and the rules can change without rebuilding it.
"""

from __future__ import annotations

from functools import lru_cache

_STOP_WORDS = """
a about again all also am an and any anyone anything are aren as at be because been before being but by can cannot could
couldn d did didn do does doesn doing don during each either else etc even ever every few for from get gets got had hadn
has hasn have haven having he her here hers herself him himself his how however i if in into is isn it its itself just
let ll m made make many maybe me might mine more most much must my myself no nor not now o of off on once one only or
other others our ours ourselves out own please quite re really s same shall she should shouldn so some someone something
such t tell than that the their theirs them themselves then there these they thing things this those though through to
too until up upon us ve very was wasn we were weren what whatever when where whether which while who whom whose why will
with within without won would wouldn yes yet you your yours yourself yourselves
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())

_IRREGULAR = """
be am is are was were been being|begin begins began begun beginning|break breaks broke broken breaking
bring brings brought bringing|build builds built building|buy buys bought buying|catch catches caught catching
choose chooses chose chosen choosing|come comes came coming|cost costs costing|cut cuts cutting|deal deals dealt dealing
draw draws drew drawn drawing|drink drinks drank drunk drinking|drive drives drove driven driving
eat eats ate eaten eating|fall falls fell fallen falling|feel feels felt feeling|fight fights fought fighting
find finds found finding|fly flies flew flown flying|forget forgets forgot forgotten forgetting
freeze freezes froze frozen freezing|give gives gave given giving|go goes went gone going
grow grows grew grown growing|hear hears heard hearing|hide hides hid hidden hiding|hold holds held holding
keep keeps kept keeping|know knows knew known knowing|lead leads led leading|leave leaves left leaving
lend lends lent lending|lose loses lost losing|mean means meant meaning|meet meets met meeting|pay pays paid paying
read reads reading|ride rides rode ridden riding|ring rings rang rung ringing|rise rises rose risen rising
run runs ran running|say says said saying|see sees saw seen seeing|seek seeks sought seeking|sell sells sold selling
send sends sent sending|set sets setting|shake shakes shook shaken shaking|shine shines shone shining
show shows showed shown showing|sing sings sang sung singing|sit sits sat sitting|sleep sleeps slept sleeping
speak speaks spoke spoken speaking|spend spends spent spending|stand stands stood standing
steal steals stole stolen stealing|swim swims swam swum swimming|take takes took taken taking
teach teaches taught teaching|think thinks thought thinking|throw throws threw thrown throwing
understand understands understood understanding|wake wakes woke woken waking|wear wears wore worn wearing
win wins won winning|write writes wrote written writing|child children|foot feet|man men|mouse mice|person people
tooth teeth|woman women|life lives|wife wives|index indexes indices|
"""
_PARADIGMS = {
    form: tuple(line.split())
    for row in _IRREGULAR.strip().splitlines()
    for line in row.split("|")
    for form in line.split()
}
_VOWELS = frozenset("aeiouy")
_MIN_STEM = 3
_MAX_FORMS = 24


@lru_cache(maxsize=4_096)
def word_forms(word: str) -> tuple[str, ...]:
    """Return a lower-case word and its inflected forms, the word itself first."""
    if len(word) < _MIN_STEM or not (word.isascii() and word.isalpha()):
        return (word,)
    if word in _PARADIGMS:
        return tuple(dict.fromkeys((word, *_PARADIGMS[word])))
    forms = [word]
    for base in _bases(word):
        forms += _inflections(base)
    return tuple(dict.fromkeys(forms))[:_MAX_FORMS]


def _bases(word: str) -> list[str]:
    """Return what a word may be a form of; some are not words, and then match nothing."""
    bases: list[str] = []
    if word.endswith(("ies", "ied")) and len(word) > 4:
        bases.append(f"{word[:-3]}y")
    elif word.endswith("es") and len(word) > 4 and word[:-2].endswith(("s", "x", "z", "ch", "sh", "o")):
        bases += [word[:-2], word[:-1]]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        bases.append(word[:-1])
    elif word.endswith("ing") and _is_stem(word[:-3]):
        bases += _stems(word[:-3])
    elif word.endswith("ed") and _is_stem(word[:-2]):
        bases += _stems(word[:-2])
    elif word.endswith("ly") and len(word) > 5:
        bases.append(word[:-2])
    return bases or [word]


def _is_stem(text: str) -> bool:
    return len(text) >= _MIN_STEM and any(c in _VOWELS for c in text)


def _stems(text: str) -> list[str]:
    """Return the verbs whose -ed or -ing form begins with `text`: stop(p), create, visit."""
    if text[-1] == text[-2] and text[-1] not in "lsz":
        return [text[:-1]]
    if text[-1] in "csuvz" or (text[-2] in _VOWELS and text[-1] not in _VOWELS and text[-3] not in _VOWELS):
        return [f"{text}e", text]
    return [text, f"{text}e"]


def _inflections(base: str) -> list[str]:
    forms = [base]
    if base.endswith("y") and base[-2] not in _VOWELS:
        return [*forms, f"{base[:-1]}ies", f"{base[:-1]}ied", f"{base}ing"]
    forms.append(f"{base}es" if base.endswith(("s", "x", "z", "ch", "sh")) else f"{base}s")
    if base.endswith("e"):
        return [*forms, f"{base}d", f"{base[:-1]}ing"]
    forms += [f"{base}ed", f"{base}ing", f"{base}ly"]
    if len(base) > 2 and base[-1] not in _VOWELS and base[-1] not in "wx" and base[-2] in _VOWELS:
        forms += [f"{base}{base[-1]}ed", f"{base}{base[-1]}ing"]
    return forms
