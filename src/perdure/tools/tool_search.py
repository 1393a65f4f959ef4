"""Find a tool by what it does: the search behind `find_tools`.

A request in plain words is held against names, descriptions and parameters of the tools. Their words and meaning are
scored by `ScoreTexts`; the verbs of request and name (list, create, delete, …) and a server that the request names
decide between tools for the same thing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

from perdure.core.errors import ToolError
from perdure.core.messages import canonical_json
from perdure.core.ports import ScoreTexts
from perdure.tools.tool import Tool, describe_schema

_SUMMARY_CHARS = 70
_SCHEMA_CHARS = 4_000
_MAX_RESULTS = 20
_MAX_OTHERS = 10
SEPARATOR = "__"

# Synonyms in requests and tool descriptions, grouped.
_SYNONYM_GROUPS = """
accept decline invitation rsvp respond|access permission share|alert alarm warn notify alert-rule|
answer reply respond response|assign give hand owner assignee|attachment attach attached file|
author commit history who|automatically filter rule sort incoming|backlog team|balance money account fund|
big large size|bill invoice charge|block blocking depend link lock wait|branch line|bring invite add join|bug error|
byte size info|bytes size|cancel stop end terminate quit unsubscribe abort|chat slack channel dm conversation|
ci workflow action check build pipeline job|click press button|close resolve done fix finish complete transition|
close resolve state shut|column field schema structure describe|comment remark discussion note|
commit change diff history|compare diff change|connect connection session lock block|console javascript log error|
copy clone fork duplicate|count number many|customer client buyer|db database postgres sql table row data|
discussion thread reply|document describe write page|draft unsent|drop upload put attach|
dropdown select option choose pick|duplicate link|error exception crash failure bug issue problem|
everyone everybody all|exceed pass limit above threshold rate|file document|filter rule automatic|folder directory|
form field sign-up|free busy available availability|go navigate visit open browse|gone disappear wait|graph tree|
host node machine server|hour time worklog effort spend|index speed|instance replica|invite add attendee|
lately recent history commit|latest recent newest last|library package repository project|log logs output|
mail email e-mail inbox letter newsletter|many count query row statement|meet meeting free busy appointment|
meeting appointment event calendar call invite standup|mention say message talk discuss|merge land squash|
mine my me assigned|minute rate limit|mode theme|modified change time info|move rename shift reschedule postpone|
mute ignore silence snooze|node cpu memory machine load usage|notification unread news|offer letter mail|
office letter mail|outage incident error|over exceed rate limit|overdue due date|page alert warn|
page note document doc|pay payment checkout link|pdf export download convert save|
person people user member colleague employee team|person user account who|picture screenshot image photo|
pod container kubernetes k8s cluster|pr pull request|price cost charge|print pdf save|priority urgent|
product item sell|profile title phone contact|project initiative|propose pull|public repository|publish release|
purchase buy pay order|reach contact|react reaction emoji thumbs smiley like|readable access share|
red fail failed failure broken green pass status|redo rerun|refund money back reimburse|
release version deploy deployment ship tag rollout|remind schedule|reopen state|repo repository|
rerun retry restart again|review approve accept sign-off lgtm|reviewer review comment feedback say|
rollback undo revert back|salary price row table|say text body content|scale replica copy instance|
schedule later tomorrow time|security vulnerability scan alert|
send post tell inform notify announce write message share ping let know shout|shell command exec run|
shift reschedule appointment event|shipping option|size large big space|slide presentation document|
slow performance plan explain cost|spreadsheet sheet cell excel csv|sprint iteration cycle|ssh exec shell|
stack trace traceback|star label tag archive read unread|status state transition progress|
subscribe subscription watch|subscription plan membership monthly subscribe|sum total query|summary describe|
sync update up-to-date|table row update statement|tail last head first|tax price|text content write|thread replies|
ticket issue bug story task defect|topic purpose|tree below structure|tree structure hierarchy|type enter fill input|
upload put attach share|value row update statement|vote reaction|website page browser url web site address|
when time date modified|who user member people|why describe explain reason event|
wiki confluence page doc documentation article|yaml manifest apply|
"""
SYNONYMS = tuple(tuple(group.split()) for line in _SYNONYM_GROUPS.split("\n") for group in line.split("|") if group)
# Notations that imply a kind of thing.
_NOTATIONS = (
    (re.compile(r"(?<!\w)#[A-Za-z]"), "channel message"),
    (re.compile(r"\b[A-Z]{2,10}-\d{1,6}\b"), "ticket issue"),
    (re.compile(r"\bhttps?://|\b[\w-]{1,60}\.(?:com|org|net|io|dev)\b"), "web browser page"),
    (
        re.compile(r"(?<!\w)(?:~|\.{1,2})?/\w|\*\.\w|\b[\w-]{1,60}\.(?!com\b|org\b|net\b|io\b|dev\b)[a-z]{2,4}\b"),
        "file folder",
    ),
    (
        re.compile(
            r"\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\b(?:tomorrow|noon|o'clock)\b"
            r"|\b\d{1,2}(?::\d\d)? ?[ap]\.?m\b",
            re.IGNORECASE,
        ),
        "appointment date time",
    ),
    (re.compile(r"[\w.]{1,60}@[\w-]{1,60}\.\w"), "mail address"),
)


# What a call does, by the verbs in tool names and in requests. Where a word is in several rows, the first one counts.
_VERBS = """
many    list search query find browse lookup locate
one     get read describe retrieve fetch show view check explain download export see display print look
delete  delete remove cancel drop erase discard kill throw rid trash destroy terminate end stop decline
act     click type press enter choose select fill navigate go visit run execute exec take save
create  create add new make insert start register upload push post send reply draft schedule invite share fork write
create  book put document comment email mail message answer plan file prepare build publish set react
update  update edit modify move rename change transition assign merge resolve close apply scale mark replace fix raise
update  finish finalize restart rerun rollout roll approve rewrite adjust correct reopen reschedule
"""
_ACTIONS = {
    verb: action for action, *verbs in reversed([line.split() for line in _VERBS.split("\n") if line]) for verb in verbs
}
_PHRASES = {
    "get rid of": "delete",
    "call off": "cancel",
    "throw away": "delete",
    "write back": "reply",
    "look up": "search",
    "set up": "create",
}
_WRITES = ("create", "update", "delete")
_QUESTION = re.compile(
    r"(?:so|and|hey|please|ok|now)?[, ]*(?:what|which|who|whose|when|where|is|are|was|were|did|does|do|has|have|how|why"
    r"|any|whats|can i|tell me|give me|all|every)\b"
)
_MANY = re.compile(r"\b(?:which|all|every|any|anybody|anyone|anything|list|many|everyone|where)\b|\bwhat \w+s\b")
_WORD = re.compile(r"[a-z]+")
_SAME_ACTION, _OTHER_READ, _OTHER_ACTION = 1.4, 1.15, 0.6
_NAMED_GROUP = 2.0


def read_action(request: str) -> str | None:
    """Return what a request wants done: read many or one, create, update or delete; None if unknown."""
    text = " ".join(request[:300].lower().replace("'", "").split())
    for phrase, plain in _PHRASES.items():
        text = text.replace(phrase, plain)
    if _QUESTION.match(text):
        return "many" if _MANY.search(text) else "one"
    verb = next((_ACTIONS[w] for w in _WORD.findall(text) if w in _ACTIONS), None)
    return "many" if verb == "one" and _MANY.search(text) else verb


def _action_factor(action: str | None, tool: Tool) -> float:
    words = _WORD.findall(split_name(tool)[1].lower())
    own = next((_ACTIONS[w] for w in words if w in _ACTIONS), "one" if tool.is_read_only else None)
    if action is None or own is None:
        return 1.0
    if action == own:
        return _SAME_ACTION
    if "act" in (action, own):
        return 1.0
    if (action in _WRITES) != (own in _WRITES):
        return _OTHER_ACTION
    return _OTHER_READ if action not in _WRITES else 1.0 if "delete" not in (action, own) else _OTHER_ACTION


class ToolFinder:
    """The `find_tools` tool: search the tools that are not sent."""

    def __init__(self, rank: ScoreTexts, deferred: Sequence[Tool]) -> None:
        self._rank = rank
        self._tools = {t.name: t for t in deferred}
        self._texts = tuple(_searched_text(t) for t in deferred)

    def find_tools(
        self,
        query: Annotated[str, "what you want to do, in plain words, or names from the list"],
        limit: Annotated[int, "most tools to show"] = 5,
    ) -> str:
        """Finds tools by what they do."""
        named = [self._tools[n] for n in dict.fromkeys(re.split(r"[\s,;]+", query)) if n in self._tools]
        others: list[Tool] = []
        if not named:
            most, ranked = min(max(1, limit), _MAX_RESULTS), self.rank(query)
            named, others = ranked[:most], ranked[most : most + _MAX_OTHERS]
        if not named:
            raise ToolError(f"no tool matches {query[:200]!r}; use other words, or names from the list")
        shown = [_describe(t, is_whole=len(named) == 1) for t in named]
        if others:
            names = "\n".join(f"{t.name}: {first_words(t.description)}" for t in others)
            shown.append(f"Less likely (find_tools with a name shows its arguments):\n{names}")
        return "\n\n".join(shown)

    def rank(self, query: str) -> list[Tool]:
        """Return the tools that match, best first."""
        hints = " ".join(words for pattern, words in _NOTATIONS if pattern.search(query[:1_000]))
        action, words = read_action(query), set(_WORD.findall(query.lower()))
        scores = self._rank(f"{query.lower()} {hints}", self._texts, synonyms=SYNONYMS)
        ranked = [
            (
                score
                * _action_factor(action, tool)
                * (_NAMED_GROUP if split_name(tool)[0].rstrip("_") in words else 1.0),
                -n,
                tool,
            )
            for n, (score, tool) in enumerate(zip(scores, self._tools.values(), strict=True))
            if score > 0
        ]
        return [tool for _, _, tool in sorted(ranked, key=lambda row: row[:2], reverse=True)]


def split_name(tool: Tool) -> tuple[str, str]:
    """Return the group and the rest of the name: `github__` and `create_issue`; the toolset for other names."""
    prefix, separator, name = tool.name.partition(SEPARATOR)
    return (f"{prefix}{separator}", name) if separator and name else (f"{tool.toolset}: ", tool.name)


def first_words(description: str) -> str:
    line = " ".join(description[: 4 * _SUMMARY_CHARS].split())
    sentence = line.split(". ")[0].rstrip(".")
    return sentence if len(sentence) <= _SUMMARY_CHARS else f"{sentence[:_SUMMARY_CHARS].rsplit(' ', 1)[0]} …"


def _searched_text(tool: Tool) -> tuple[str, str]:
    properties = tool.parameters.get("properties")
    parameters = " ".join(properties) if isinstance(properties, dict) else ""
    return tool.name, f"{tool.description[:1_000]} {parameters}"


def _describe(tool: Tool, *, is_whole: bool) -> str:
    schema = canonical_json(dict(tool.parameters))
    if len(schema) > _SCHEMA_CHARS and not is_whole:
        schema = f"{describe_schema(tool.parameters)} (find_tools with this name alone shows the whole schema)"
    return f"{tool.name}: {tool.description}\narguments: {schema}"
