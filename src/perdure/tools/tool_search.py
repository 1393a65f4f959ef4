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
# Characters of a request or a description that are read.
_READ_CHARS = 1_000
_SCHEMA_CHARS = 4_000
_MAX_RESULTS = 20
_MAX_OTHERS = 15
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
mine assigned own|minute rate limit|mode theme|modified change time info|move rename shift reschedule postpone|
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
upload put attach share|value row update statement|vote reaction|website page browser url site homepage|
when time date modified|who user member people|why describe explain reason event|
wiki confluence page doc documentation article|yaml manifest apply|
"""
SYNONYMS = tuple(tuple(group.split()) for line in _SYNONYM_GROUPS.split("\n") for group in line.split("|") if group)
# Notations that imply a kind of thing.
_NOTATIONS = (
    (re.compile(r"(?<!\w)#[A-Za-z]"), "channel message"),
    (re.compile(r"\b[A-Z]{2,10}-\d{1,6}\b"), "ticket issue"),
    (re.compile(r"\bhttps?://|(?<![@\w.-])[\w-]{1,60}\.(?:com|org|net|io|dev)\b"), "web browser page"),
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
    (re.compile(r"[\w.]{1,60}@[\w-]{1,60}\.\w"), "email address"),
)
# What people call an action, and the words that tools have for it.
_IDIOMS = (
    (r"(?:drop|shoot|write|send) (?:\S+ ){0,3}(?:a )?(?:line|note|word)", "send email message"),
    (r"(?:write|wrote|written|get|got) back to|hear from|heard from", "reply search email"),
    (r"say no|can'?t make it|turn (?:it|them|that)? ?down|won'?t (?:make|attend|be there)", "respond event decline"),
    (r"lying around|track (?:\w+ )?down|hunt (?:\w+ )?down|look(?:ing)? for|where (?:is|are|did|in)", "search find"),
    (r"laid out|overview|subfolders?", "tree structure directory"),
    (r"grep|codebase|source code|in the code", "search code"),
    (r"sluggish|slow|hogging|laggy|crawling|takes forever|grinding", "slow queries active"),
    (r"(?:swap|replace|change) \S+ (?:for|with|by|to)", "edit update"),
    (r"call (?:it|\S+) \S+ instead|give (?:it|\S+) (?:a )?(?:new|another|different|better) name", "rename move"),
    (r"behind (?:main|master)|catch (?:it |\w+ )?up|out of date|rebase", "update branch"),
    (r"can'?t start until|depend\w*|blocked by|waits? (?:for|on)", "link issue"),
    (r"from now on|automatically|straight into|always (?:put|move|goes?)|never see", "create filter rule"),
    (r"came with|came along|put (?:some |the )?\w+ on [A-Z]+-\d+", "attachment download get"),
    (r"out of (?:my|the) inbox|file away|as (?:un)?read", "modify email label archive"),
    (r"(?:let|allow|give) \S+ (?:\w+ ){0,2}(?:comment|edit|change|see|view|access|read|look)", "share permission"),
    (r"as (?:a |an )?(?:pdf|docx?|word|csv|xlsx?|excel|html|markdown)", "export convert"),
    (
        r"supposed to|on my plate|on my list|assigned to me|my (?:\w+ )?(?:tasks|tickets|issues|todos?)",
        "my issues list",
    ),
    (r"shut (?:it|that|this|them) up|nois[ey]|stop (?:bothering|alerting|notifying|nagging)", "ignore mute issue"),
    (
        r"(?:ping|warn|tell|notify|alert|page|wake|let) (?:me|us|\w+)(?: know| up)? (?:if|when|once|as soon)",
        "alert rule",
    ),
    (r"how does \S+ (?:\S+ )?look|let me see|look(?:s)? like|see what \S+ (?:page|site)", "screenshot page"),
    (r"bounce|power ?cycle|turn (?:it )?off and on", "restart rollout"),
    (r"crash-?loop\w*|what'?s running|up and running|is (?:it|\S+) (?:up|healthy|alive)", "pods list status"),
    (r"crash(?:es|ing|ed)?|blow(?:ing|s)? up|blew up|exceptions?", "error issue"),
    (r"don'?t send|not send|look it over|before it goes out|proofread", "draft email"),
    (r"money back|reimburse|return (?:the|their|his|her) (?:money|payment)", "refund"),
    (r"how much (?:money|cash|do we|have we|is in|we have)", "balance"),
    (r"get rid of|throw (?:\w+ )?(?:away|out)|bin (?:it|that)|nuke|wipe|toss|clear out", "delete remove"),
    (r"hand (?:it |this |that |\S+ )?(?:over )?to|give (?:it|this|that|[A-Z]+-\d+) to|take over", "assign issue"),
    (r"(?:push|move|shift|bump) .{0,40}(?:back|an hour|until|till|forward|later|earlier)", "reschedule update event"),
    (r"block (?:out|off)|pencil|(?:on|in) (?:the|my|our) (?:calendar|diary)", "calendar event"),
    (r"free (?:on|at|for|this|next|tomorrow)|time slot|open slot|when can", "free busy availability"),
    (r"more (?:copies|instances|replicas)|spin up|ramp up|beef up", "scale replicas deployment"),
    (r"go back to|roll(?:ed|ing)? ?back|previous version|the old version", "rollback undo"),
    (r"who (?:wrote|changed|touched|broke)|blame|what changed", "commits history"),
    (r"fill (?:in|out|it)|enter \S+ (?:in|into)|into the \w+ (?:field|box)", "type fill form"),
    (r"tick|check the box|press|hit the|tap|push the button", "click"),
    (r"sign(?:ed)? ?off|lgtm|looks good to me", "review approve"),
    (r"open a pr|put up (?:a|my)|propose (?:the |my |these )?changes?", "create pull request"),
    (r"jot|write (?:it|this|that|\w+) down|take a note|minutes of", "create page note"),
    (r"how many|average|in total|grand total|add up", "query count select"),
    (r"what (?:columns|fields)|which (?:columns|fields)", "describe table"),
    (r"stop (?:charging|billing)|(?:no longer|doesn'?t) want to pay", "cancel subscription"),
    (r"kick (?:\S+ )?(?:off )?(?:again|ci)|try (?:it )?again|once more|flaky", "rerun retry failed"),
    (r"thumbs ?up|smiley|heart|emoji", "add reaction"),
    (r"knock off|wrap up|mark (?:\S+ )?(?:as )?(?:done|finished|complete)", "transition close done"),
    (r"get \S+ (?:and \S+ )?into|bring \S+ in(?:to)?|add \S+ to (?:the )?(?:channel|call|meeting)", "invite add"),
    (
        r"what have (?:people|they) been|catch me up|what did i miss|since (?:this morning|yesterday)",
        "history messages",
    ),
    (r"(?:book|have|do|schedule) (?:\w+ ){0,2}(?:lunch|dinner|breakfast|coffee|drinks|a call|a chat)", "create event"),
    (r"(?:every|all|each|the) rows?|in the \w+ table|rows (?:where|with)", "execute sql statement"),
    (r"sheets?|columns? [A-Z]\b", "sheets read"),
    (r"sub-?pages?|child pages?|pages (?:below|under)", "page children"),
    (r"tack|append|(?:at|to|onto) the (?:bottom|end)", "append children block"),
    (r"flip|tick off", "update properties"),
    (r"api calls?|network traffic|loads", "network requests"),
    (r"thrown|threw|raised|stack ?trace|traceback", "error event details"),
    (r"ask(?:ed|ing)? for changes|changes requested|needs work", "pull request review"),
    (r"bill \w+", "create invoice"),
    (r"pods?|namespace", "pods kubernetes list"),
)
_COMPILED_IDIOMS = tuple((re.compile(rf"\b(?:{idiom})\b", re.IGNORECASE), words) for idiom, words in _IDIOMS)
# What a service is about, by a part of its name: its tools seldom state it.
_SERVICES = {
    "gmail": "email mail inbox",
    "outlook": "email mail inbox calendar",
    "calendar": "calendar event meeting appointment",
    "drive": "drive file document folder",
    "dropbox": "file folder",
    "slack": "chat channel message team",
    "teams": "chat channel message team meeting",
    "discord": "chat channel message server",
    "github": "code repository pull request",
    "gitlab": "code repository merge request",
    "jira": "ticket issue project",
    "linear": "ticket issue project",
    "asana": "task project",
    "trello": "task card board",
    "notion": "page note document wiki",
    "confluence": "page document wiki",
    "stripe": "payment customer invoice billing",
    "sentry": "error crash exception monitoring",
    "datadog": "metric log monitoring",
    "kubernetes": "cluster pod container deployment service",
    "k8s": "cluster pod container deployment service",
    "docker": "container image",
    "postgres": "database table sql",
    "mysql": "database table sql",
    "sqlite": "database table sql",
    "playwright": "browser website page",
    "puppeteer": "browser website page",
    "filesystem": "file folder disk project",
}


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
        descriptions = [_describe(t, is_whole=len(named) == 1) for t in named]
        if others:
            names = "\n".join(f"{t.name}: {first_words(t.description)}" for t in others)
            descriptions.append(f"Less likely (find_tools with a name shows its arguments):\n{names}")
        return "\n\n".join(descriptions)

    def rank(self, query: str) -> list[Tool]:
        """Return the tools that match, best first."""
        hints = " ".join(
            words for pattern, words in (*_NOTATIONS, *_COMPILED_IDIOMS) if pattern.search(query[:_READ_CHARS])
        )
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
    name = tool.name.lower()
    services = " ".join(words for service, words in _SERVICES.items() if service in name)
    return tool.name, f"{tool.description[:_READ_CHARS]} {parameters} {services}"


def _describe(tool: Tool, *, is_whole: bool) -> str:
    schema = canonical_json(dict(tool.parameters))
    if len(schema) > _SCHEMA_CHARS and not is_whole:
        schema = f"{describe_schema(tool.parameters)} (find_tools with this name alone shows the whole schema)"
    return f"{tool.name}: {tool.description}\narguments: {schema}"
