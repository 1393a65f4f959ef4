"""The search of `find_tools`: rank tools by what they do.

A request in plain words is compared with names, descriptions and parameters of the tools. Their words and meaning are
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
_SIGNATURE_ARGUMENTS = 12
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
    (re.compile(r"[\U0001F300-\U0001FAFF\u2600-\u27BF]|(?<!\w):[a-z_+-]{2,30}:"), "reaction emoji"),
    (re.compile(r"(?<![\w/.~])[A-Za-z][\w-]{1,60}/[A-Za-z][\w.-]{1,60}(?![\w/])"), "repository github"),
    (re.compile(r"\bv\d+\.\d"), "release version tag"),
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
    (r"merge proposals?|proposed changes?|code changes?|(?:waiting|up|open) for review|put it up", "pull request"),
    (
        r"(?:newest|latest|current|next|new) version|(?:has |have )?c[oa]me out|changelog|what'?s new in",
        "releases version",
    ),
    (
        r"commit together|in one (?:go|commit)|all at once|(?:four|five|six|several|both|these) \w* ?(?:\w+ )?files",
        "several multiple files push",
    ),
    (r"(?:next|coming|last|first) (?:two|three) weeks|fortnight", "sprint create dates"),
    (
        r"how-?to|guide|instructions|handbook|manual|documented|write-?up|policy|cheat ?sheet",
        "search wiki pages document",
    ),
    (r"underneath|beneath|sits? (?:under|below)|nested|sub-?sections?", "pages below children list"),
    (
        r"sign(?:ed)? up|(?:users|customers|people|orders) (?:who|that|with|from)|in (?:our|the) (?:db|database)",
        "query database rows",
    ),
    (r"from (?:my |the )?(?:desktop|downloads)|tidy|into (?:the|my|our) \S+ folder|belongs in", "move file"),
    (
        r"(?:write|wrote|written|send|sent|mailed?) (?:me|us)|anything from|hear back|get back to (?:me|us)",
        "search email mailbox sender",
    ),
    (r"lock (?:it |that |this )?in|make it final|good to go|all correct|ready to go out", "finalize finish"),
    (r"\d+ (?:copies|instances|replicas|of them)|more traffic|a rush", "scale replicas deployment"),
    (
        r"(?:inside|into|in) the \S+ (?:container|pod|box)|(?:df|ls|ps|du|cat|env|top|curl|free) -\w+",
        "exec command container",
    ),
    (r"ready by|due (?:by|on|date)|deadline|no later than|headline|the title", "update issue field due date summary"),
    (
        r"who(?:'s| is) (?:coming|invited|attending)|my (?:day|week|agenda|schedule)|on (?:my|the) agenda|got planned",
        "list events calendar",
    ),
    (r"rsvp|count me in|i'?ll be there|happy to join|i'?m (?:not )?coming", "respond event accept invitation"),
    (r"contents of|what'?s in (?:the|my|this) \S+ ?folder|which files are", "list directory folder"),
    (
        r"how (?:big|large|heavy)|takes? up|eating (?:up )?(?:my |the )?(?:disk|space)|biggest|largest",
        "size files folder",
    ),
    (r"owes?|unpaid|outstanding|past due", "invoice list"),
    (r"sells?|on offer|price list|goes? for|costs? \S+ (?:a|per) (?:month|year)", "product price"),
    (r"(?:paying|pays?|subscribed|signed up) (?:\w+ )*(?:plan|month|monthly|premium|for)", "subscriptions list"),
    (r"drop-?down|from the list of|out of the list", "select option"),
    (r"js|javascript|browser (?:log|errors?|console)|dev ?tools", "console messages"),
    (
        r"(?:fetched|requested|called|hits?) (?:by|from) the (?:page|site|browser)|xhr|ajax|status codes?",
        "network requests",
    ),
    (r"phone number|job title|time ?zone|what does \S+ do|contact details|reach \w+", "user profile"),
    (
        r"(?:send|post|tell|remind|announce|wish) .{0,80}(?:tomorrow|tonight|at \d+ ?[ap]m|first thing|on \w+day)"
        r"|(?:tomorrow|tonight|\w+day|later|in the morning) .{0,30}(?:goes? out|send|post|tell|remind|announce)",
        "schedule message later",
    ),
    (r"privately|direct message|dm|in private", "message person send"),
    (r"(?:spent|worked|put in) .{0,20}(?:hours?|minutes?|days?|h)|log (?:my )?(?:time|hours)", "worklog hours"),
    (r"belongs to|related to|relates to|same (?:thing|bug|problem) as|connected (?:to|with)|goes with", "link issues"),
    (r"kanban|scrum|boards", "agile boards"),
    (r"(?:this|current|running|active) sprint|in sprint \d+", "sprint issues tickets"),
    (
        r"where can (?:\S+ )?(?:go|move)|possible (?:next )?(?:states|statuses|steps)|next (?:states?|steps?) for",
        "transitions statuses list",
    ),
    (
        r"(?:eating|using|out of|low on|short of) (?:\w+ )*(?:memory|ram|cpu)|maxed out|under load",
        "node usage cpu memory",
    ),
    (
        r"what happened to|why (?:is|does|did|won'?t) (?:\S+ )*(?:pod|container|deployment|service)",
        "describe resource events",
    ),
    (r"(?:went|gone|rolled|been) (?:out|live)|in production|to production|deployed|on prod", "deployments releases"),
    (r"affected|how often|who(?:'s| is) hit|breadcrumbs|one occurrence|that one time", "error details event"),
    (
        r"vulnerabilit(?:y|ies)|security (?:holes?|problems?|issues?|warnings?)|insecure|scanner",
        "code scanning security alerts",
    ),
    (r"what'?s waiting for me|needs my attention|mentioned me|new for me", "notifications unread"),
    (
        r"(?:red|green|pass\w*|fail\w*|checks|tests) .{0,30}(?:on|for|of) (?:pr|#?\d+)|mergeable|can \S+ be merged",
        "pull request status checks",
    ),
    (
        r"why did (?:the )?(?:\w+ )?(?:build|job|ci|tests?|pipeline|deploy) (?:fail|break)|build (?:log|output)",
        "job logs",
    ),
    (r"(?:which|what) files (?:does|did|are|were)|touch(?:es|ed)?", "files changed"),
    (
        r"people (?:said|wrote|answered|replied)|(?:answers|replies|responses|answered) (?:under|to|below|on)",
        "thread replies read",
    ),
    (
        r"out of (?:the|our|my) (?:\w+ )*(?:notes?|page|doc|list)|(?:paragraph|bullet|heading|section|block)s?",
        "block page",
    ),
    (r"planner|our (?:\w+ )?list|tracker|to-?do list", "database row page properties"),
    (
        r"(?:has|have|had) moved to|is (?:now )?(?:on|at)|postponed to|instead of (?:mon|tues|wednes|thurs|fri|\d)",
        "update date",
    ),
    (
        r"is (?:done|finished|complete)|can be closed|is fixed|has been fixed|it'?s fixed",
        "status done close update resolve",
    ),
    (r"my own copy|tinker|play around with|(?:in|into|under) my account", "fork copy repository"),
    (r"go-?ahead|thumbs-?up on (?:his|her|their|the) (?:pr|change)|green light|ship it", "approve review pull request"),
    (r"stuck|blocking|deadlock(?:ed)?|hang(?:s|ing)?|who(?:'s| is) connected", "active connections locks"),
    (r"speed up|make .{0,40}faster|full scan|seq(?:uential)? scan|table scans?", "index create plan explain"),
    (r"sections?|split (?:up )?into|areas|departments|squads?", "spaces namespaces teams list"),
    (r"first \d* ?lines|last \d* ?lines|the (?:first|last) (?:few|couple|\d+)", "read file lines"),
    (r"when was \S+ (?:last )?(?:changed|edited|modified|touched|saved)|how old is", "file info modified"),
    (r"side by side|both (?:of )?(?:these|those|the)? ?files|\S+\.\w+ and \S+\.\w+", "read multiple files"),
    (
        r"online store|something (?:\w+ )*(?:text|send) to (?:a|the|my|our) (?:client|customer)|settle|pay online",
        "payment link",
    ),
    (
        r"(?:enter|put|write|fill) .{0,40}(?:cell|row \d+|column \w|[A-Z]\d+)|next to \S+ .{0,40}row",
        "update cell spreadsheet",
    ),
    (r"can'?t open|as a (?:word|pdf|excel) (?:file|document)|in (?:word|excel|pdf) (?:format|form)", "export document"),
    (r"(?:her|his|their|the) (?:answer|reply|question|post|message)", "message thread"),
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
many    list search query find browse lookup locate hunt
one     get read describe retrieve fetch show view check explain download export see display print look examine inspect
one     compare summarize tail peek
delete  delete remove cancel drop erase discard kill throw rid trash destroy terminate end stop decline wipe purge scrap
delete  uninstall revoke unsubscribe
act     click type press enter choose select fill navigate go visit run execute exec take save pick tap hover scroll
create  create add new make insert start register upload push post send reply draft schedule invite share fork write
create  book put document comment email mail message answer plan file prepare build publish set react open leave copy
create  clone duplicate log record note tell inform notify announce ask refund reimburse charge bill attach link remind
create  launch begin thank warn generate request propose
update  update edit modify move rename change transition assign merge resolve close apply scale mark replace fix raise
update  finish finalize restart rerun rollout roll approve rewrite adjust correct reopen reschedule swap bump flip tick
update  hand shift switch promote demote unassign convert bounce reassign archive star mute ignore silence snooze undo
update  revert rollback postpone increase lower reduce extend shorten relabel complete retry
"""
_ACTIONS = {
    verb: action for action, *verbs in reversed([line.split() for line in _VERBS.split("\n") if line]) for verb in verbs
}
# Turns of phrase whose first verb means something else.
_PHRASES = tuple(
    (re.compile(rf"\b(?:{phrase})\b"), plain)
    for phrase, plain in (
        (r"get rid of|throw (?:\w+ )?away|(?:kick|take|strike|leave) (?:[\w]+ ){1,4}out", "delete"),
        (r"call off", "cancel"),
        (r"write back|get back to", "reply"),
        (r"look(?:ing)? (?:up|for|inside|into)|track down|i (?:cant|cannot) find|any ?one|any ?thing", "search"),
        (r"set (?:\w+ )?up|kick off|put (?:\w+ )?together|come up with|spin up|i need (?:a|an|some\w*)", "create"),
        (r"give (?:\w+ ){0,2}(?:a|the) (?:shout|ping|heads up|go ahead|thumbs up)|let (?:\S+ ){1,4}know", "send"),
        (r"(?:get|bring|add|pull) (?:\w+ )(?:and \w+ )?(?:in|into|to)", "invite"),
        (r"take (?:\w+ ){1,3}off|get (?:\w+ ){1,8}out of|call (?:\S+ ){1,3}instead", "update"),
        (r"catch (?:\w+ )up|fill (?:\w+ )in on|i need the|i d like to (?:see|know)|let me (?:see|know)", "show"),
    )
)
_WRITES = ("create", "update", "delete")
_QUESTION = re.compile(
    r"(?:(?:so|and|but|hey|please|ok|now|can you|could you|in|into|for|to|from|at|on|with) )*(?:what|whats|which"
    r"|who|whos|whose|when|whens|where|wheres|is|are|was|were|did|does|do|has|have|how|hows|why|any|can i|tell me"
    r"|give me|all|every)\b"
)
# What comes before the verb of a request.
_OPENING = re.compile(
    r"(?:(?:please|can|could|would|will|you|u|hey|hi|so|and|then|now|just|lets|also|ok|kindly|maybe|quickly|need to"
    r"|go ahead and|(?:i|we) (?:want|need)(?: you)? to|(?:i|we)d like(?: you)? to|(?:i|we) (?:have to|should)) )+"
)
_QUOTED = re.compile(r"(?<!\w)['\"‘“][^'\"’”]{1,200}['\"’”](?!\w)")
_CLAUSE = re.compile(r"[.!?;:,]\s|\s[-–—]\s|\n")
_OBLIGATION = re.compile(r"\b(?:should|needs? to) (?:now )?(?:be|say|go|have|become|read)\b|\bhas (?:moved|changed)\b")
_MANY = re.compile(r"\b(?:which|all|every|any|anybody|anyone|anything|list|many|everyone|where)\b|\bwhat \w+s\b")
_WORD = re.compile(r"[a-z]+")
_SAME_ACTION, _OTHER_READ, _OTHER_ACTION = 1.4, 1.15, 0.6
_NAMED_GROUP = 2.0
# What a tool gains if the best tools of its group match the request better than those of the others.
_GROUP_GAIN, _GROUP_TOOLS = 0.5, 3


def read_action(request: str) -> str | None:
    """Return the action a request asks for: "many" or "one" to read, create, update, delete; None if unknown."""
    text = _QUOTED.sub("it", request[:300]).lower().replace("'", "").replace("’", "")
    clauses = [_plain(clause) for clause in _CLAUSE.split(text)]
    first_verbs = (_ACTIONS.get(clause.partition(" ")[0]) for clause in clauses)
    commanded = next((action for action in first_verbs if action is not None), None)
    question = next((clause for clause in clauses if _QUESTION.match(clause)), None)
    if question is not None and (commanded is None or question is clauses[0]):
        return "many" if _MANY.search(question) else "one"
    if commanded is None and _OBLIGATION.search(text):
        return "update"
    verb = commanded or next((_ACTIONS[w] for c in clauses for w in _WORD.findall(c) if w in _ACTIONS), None)
    return "many" if verb == "one" and _MANY.search(text) else verb


def _plain(clause: str) -> str:
    """Return a clause from its verb on, with set phrases replaced by plain verbs."""
    text = " ".join(clause.replace("-", " ").split())
    for phrase, plain in _PHRASES:
        text = phrase.sub(plain, text)
    opening = _OPENING.match(f"{text} ")
    return text[opening.end() :] if opening else text


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
            lines = "\n".join(f"{_signature(t)}: {first_words(t.description)}" for t in others)
            descriptions.append(
                f"Less likely (? is optional; find_tools with a name describes its arguments):\n{lines}"
            )
        return "\n\n".join(descriptions)

    def rank(self, query: str) -> list[Tool]:
        """Return the tools that match, best first."""
        hints = " ".join(
            words for pattern, words in (*_NOTATIONS, *_COMPILED_IDIOMS) if pattern.search(query[:_READ_CHARS])
        )
        action, words = read_action(query), set(_WORD.findall(query.lower()))
        scores = self._rank(f"{query.lower()} {hints}", self._texts, synonyms=SYNONYMS)
        groups = [split_name(tool)[0] for tool in self._tools.values()]
        shares = _group_shares(groups, scores)
        ranked = [
            (
                score
                * _action_factor(action, tool)
                * (_NAMED_GROUP if group.rstrip("_") in words else 1.0)
                * (1 + _GROUP_GAIN * shares[group]),
                -n,
                tool,
            )
            for n, (score, group, tool) in enumerate(zip(scores, groups, self._tools.values(), strict=True))
            if score > 0
        ]
        return [tool for _, _, tool in sorted(ranked, key=lambda row: row[:2], reverse=True)]


def _group_shares(groups: Sequence[str], scores: Sequence[float]) -> dict[str, float]:
    """Return how well each group of tools matches, by its best few tools, as a share of the best group's score."""
    by_group: dict[str, list[float]] = {}
    for group, score in zip(groups, scores, strict=True):
        by_group.setdefault(group, []).append(score)
    means = {group: sum(sorted(own)[-_GROUP_TOOLS:]) / _GROUP_TOOLS for group, own in by_group.items()}
    best = max(means.values(), default=0.0) or 1.0
    return {group: mean / best for group, mean in means.items()}


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


def _signature(tool: Tool) -> str:
    """Return the name with its arguments, enough to call a simple tool: `get_issue(owner, repo, page?)`."""
    properties, required = tool.parameters.get("properties"), tool.parameters.get("required")
    if not isinstance(properties, dict) or len(properties) > _SIGNATURE_ARGUMENTS:
        return tool.name
    needed = set(required) if isinstance(required, list) else set()
    return f"{tool.name}({', '.join(name if name in needed else f'{name}?' for name in properties)})"


def _describe(tool: Tool, *, is_whole: bool) -> str:
    schema = canonical_json(dict(tool.parameters))
    if len(schema) > _SCHEMA_CHARS and not is_whole:
        schema = f"{describe_schema(tool.parameters)} (find_tools with this name alone shows the whole schema)"
    return f"{tool.name}: {tool.description}\narguments: {schema}"
