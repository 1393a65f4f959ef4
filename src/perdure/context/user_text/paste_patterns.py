"""Patterns of pasted text, and of the lines with which users ask and hand over; used by `authorship`."""

from __future__ import annotations

import re
from functools import lru_cache

from perdure.context.user_text.alternatives import compile_alternatives

# -- marked stretches ------------------------------------------------------------------------------------------------

TEXT = (
    r"(?:e-?mails?|mails?|messages?|letters?|texts?|articles?|documents?|docs?|pages?|websites?|web ?pages?|posts?"
    r"|threads?|tickets?|reports?|reviews?|logs?|outputs?|tracebacks?|transcripts?|chats?|conversations?|readme"
    r"|snippets?"
    r"|diffs?|prompts?|contracts?|paragraphs?|quotes?|poems?|stor(?:y|ies)|notes?|comments?|feedback|files?|tables?|csv"
    r"|json|sentences?|passages?|excerpts?|bios?|descriptions?|answers?|responses?|listings?|recipes?|policy|policies"
    r"|invitations?|plans?|summar(?:y|ies)|nachricht|dokument|artikel|seite|brief|courriel|texte|correo|mensaje|texto"
    r"|página|письмо|текст|страниц\w+)"
)
TREAT = (
    r"(?:summari[sz]e|sum up|tl;?dr|translate|transcribe|proof-?read|paraphrase|rewrite|rephrase|analy[sz]e|explain"
    r"|classify|extract"
    r"|shorten|reply to|respond to|answer|spell-?check|check the grammar|fasse|fass|übersetze|résume|traduis|resume"
    r"|traduce|riassumi|traduci|переведи|перескажи)"
)
POINTS = (
    r"(?:this|these|that|those|following|below|above|attached|diese[rsnm]?|folgende[rsnm]?|ce(?:tte|t)?"
    r"|est[ea]|эт\w+)"
)
INTRODUCES = re.compile(
    rf"\b{TREAT}\b|\b(?:{POINTS}|here (?:is|are)|here's|got|received|hier ist|voici|aquí está|вот)\b.*\b{TEXT}\b"
    r"|\b(?:found|got|received|saw|read|came across|copied|pasted|was sent|sent (?:me|us))\b(?!.*\b(?:rules?"
    r"|wish(?:es)?|things?|points|requests?|preferences?|questions?|your)\b)"
    rf"|\b{TEXT}\b.{{0,30}}\b(?:says?|said|reads?|wrote|goes)\b|\b(?:says?|said|wrote|writes|reads?|replied"
    rf"|posted)\s*[:：]$"
    r"|总结|翻译|以下|如下|内容是|写道|要約|翻訳|次の|以下の|요약|번역|다음",
    re.IGNORECASE,
)
# The pasted text begins on the same line: "summarise this: …".
INTRODUCES_INLINE = re.compile(
    rf"(?:\b{TREAT}\b[^:：\n]{{0,80}}|\b(?:is|are|was|does) (?:this|that|it|these)\b[^:：.?!\n]{{0,60}}"
    rf"|\b{POINTS}\b[^:：\n]{{0,40}}\b{TEXT}\b[^:：\n]{{0,40}}"
    rf"|\b{TEXT}\b[^:：\n]{{0,40}}\b(?:says?|said|reads?|wrote|goes|states?)\b[^:：\n]{{0,20}}"
    r"|\b(?:he|she|they|who|[A-Z]\w+)\b[^:：\n.]{0,30}\b(?:says?|said|wrote|writes|replied|posted|told (?:me"
    r"|us))\b[^:：\n]{0,20}"
    r"|(?:翻译|总结|解释)[^:：\n]{0,30}|(?:翻訳|要約)[^:：\n]{0,30}|(?:번역|요약)[^:：\n]{0,30})[:：]\s*(?=\S)",
    re.IGNORECASE,
)
# A question about a text, which follows on the same line.
ASKS_INLINE = re.compile(
    rf"[^.?!\n“]{{0,80}}\b(?:this|the following|these) {TEXT}\b[^.?!\n]{{0,40}}[?？]\s+(?=\S)", re.IGNORECASE
)
MAIL = re.compile(
    r"^\**(?:From|To|Cc|Von|An|De|Para|От|Кому|发件人|收件人|差出人|宛先|보낸 사람|받는 사람)\**\s*[:：] ?\S"
    r"|^-{2,} ?(?:Original Message|Forwarded message|Ursprüngliche Nachricht|Mensaje original|Message d'origine)"
    r"|^(?:On|Am|Le|El) .{4,120}(?:wrote|schrieb|a écrit|escribió)\b.{0,20}[:：]\s*$"
    r"|^\**(?:Subject|Betreff|Objet|Asunto|Тема|主题|件名|제목)\**\s*[:：] ?\S",
    re.IGNORECASE,
)
# A sentence that announces a paste without a colon: "Below is the README.", "I'll paste it here".
HANDS_OVER = re.compile(
    r"\b(?:below (?:is|are)|here (?:is|are|comes)|here's|I(?:'ll| will|'m going to) paste|pasting|pasted below)\b"
    rf".*\b{TEXT}\b[^?]*$"
    r"|\b(?:here(?:'s| is| are)|this is) what (?:I|he|she|they|we|some\w+|[A-Z]\w+) (?:got|found|saw|received|wrote"
    r"|sent|posted|read|said)\b[^?]{0,60}$"
    r"|(?:次|以下|下記)の(?:文章?|テキスト|記事|メール|内容|手紙|コード).{0,20}(?:要約|翻訳|校正|添削|説明|訳し|直し|読ん).{0,12}$"
    r"|(?:다음|아래) ?(?:의 )?(?:글|문장|텍스트|기사|메일|이메일|내용|편지).{0,12}(?:요약|번역|교정|설명|고쳐|읽어)"
    r".{0,10}$"
    r"|(?:以下|下面|下列).{0,6}(?:话|文字|文章|内容|邮件|文本|信).{0,12}(?:翻译|总结|润色|解释|改写|校对).{0,10}$"
    r"|(?:翻译|总结|润色|解释|改写|校对)(?:一下)?(?:以下|下面|下列).{0,4}(?:话|文字|文章|内容|邮件|文本|信)[。.：:]?$"
    r"|\b(?:resum[ae]|tradu(?:z|za|zir)|revis[ae]|corrij[ae]|corrige|expli(?:que|ca))\b.{0,20}"
    r"\b(?:est[ea]|seguinte|o|a) (?:texto|e-?mail|carta|artigo|mensagem|página)\b[^?]{0,20}$"
    r"|(?:لخص|ترجم|اشرح|راجع|صحح).{0,20}(?:النص|الرسالة|البريد|المقال).{0,12}$",
    re.IGNORECASE,
)
ROLE = r"(?:system|assistant|user|human|tool|admin(?:istrator)?|developer|ai|bot|moderator|support|agent)"
# Lines of a log, a transcript or a machine: `[SYSTEM] …`, `System: …`, `12:04 bob: …`, `+ added`, `{"json": …`.
LABELLED = re.compile(
    rf"^\s*(?:\[[A-Z][A-Z _-]{{2,20}}\]|\W{{0,3}}{ROLE}(?: (?:message|note|notice|prompt))?\W{{0,3}}\s*[:：>]"
    r"|\[?\d{1,2}:\d{2}(?::\d{2})?(?:,\d+)?\]?(?: -->)?\s+\S+|\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}|[\[{]\s*(?:[\"'\[{]"
    r"|$)|[}\]]\W*$|\"[^\"]{1,40}\"\s*:"
    r"|<[\w.-]{2,20}> \S|[\w.-]{2,20} \(\d{1,2}:\d{2}\)\s*:"
    r"|[0-9a-f]{7,40} \S|\d+(?:→|\s*[|│]\s)|[➜$❯]\s|>>> |at \S+ \(|File \"|(?:\w+\.)*\w*(?:Error|Exception)\b.*:"
    r"|Traceback|={2,} "
    r"|[+-]{1,3}(?! )\S|@@ |//|/\*|<!--|#!|%|;;|REM )",
    re.IGNORECASE,
)
FENCE = re.compile(r"^\s*(?:```|~~~)")
RULE = re.compile(r"^\s*(?:[-=*_#~—]{3,}|[-=]{2,} .{0,60} [-=]{2,}|\"\"\"|''')\s*$")
QUOTED = re.compile(
    r"“[^”]{60,}”|„[^“”]{20,}[“”]|\"[^\"]{120,}\"|«[^»]{20,}»|「[^」]{60,}」|『[^』]{60,}』"
    r"|(?<=[:：] )[“\"][^”\"]{10,}[”\"]|(?<=[:：])[“「『][^”」』]{6,}[”」』]"
)
# A quotation that ends on its line.
WHOLE_QUOTE = re.compile(r"\"[^\"\n]+\"[.,;]?|“[^”\n]+”[.,;]?|„[^“”\n]+[“”][.,;]?|«[^»\n]+»|「[^」\n]+」|『[^』\n]+』")
JSON_OPENS = re.compile(r"[\[{]\s*(?:\"[^\"\n]{1,60}\"\s*:|'[^'\n]{1,60}'\s*:|[\[{]\s*\")")
SPEAKER = re.compile(
    r"^\W{0,3}([A-Z\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af@][\w.@'’ -]{0,24}?)"
    r"\W{0,2}(?:\([^)\n]{1,20}\))?\s*[:：]\s+\S"
)
# A row of two values.
PAIR = re.compile(r"^[^,;\n]{1,40}[,;](?! )[^,;\n]{1,40}$")
YAML = re.compile(r"^\s*(?:- )?[a-z_][a-z0-9_-]*:(?: \S|\s*$)")
YAML_ITEM = re.compile(r"^\s+- \S")
# Lines of a program or a config, and of the comments in one.
CODE = re.compile(
    r"^\s*(?:(?:export )?[A-Za-z_][\w.-]*\s*=\s*\S*$|\[[\w.: -]+\]$|(?:FROM|COPY|ENV|CMD|WORKDIR|ENTRYPOINT|ARG|EXPOSE)"
    r" (?=.*[a-z\d/.])\S|RUN [a-z]|(?:set -\w|export \w+=|if \[|fi$|done$|def \w+\(|class \w+[(:]|import \w+$"
    r"|from [\w.]+ import |return\b.*;$|msgid \"|msgstr \"|#include|SELECT |\d+$)|.*[{}]$|.*\);$)"
)
# A command as typed into a shell; its output follows.
PROMPT = re.compile(r"^\s*(?:[➜❯]|\$|\w+@[\w.-]+[:~ ].{0,60}[$#])\s+\S")
# The first two words of a line of a log, if the second one is no plain word.
LOG_PREFIX = re.compile(r"^[\w\[(][\w.:/\[\]()-]{1,30} (?=\S*[A-Z!:\]\d])[^\sa-z][\w.:!\[\]-]{1,20} ")
COMMENT = re.compile(r"^\s*(?:#(?!#)|;|//|--|/\*)\s*\S")
LISTED = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
SEPARATORS = (",", ";", "\t", "|")
# Labels that people put before their own words.
OWN_LABELS = frozenset(
    ("note", "notes", "rule", "rules", "important", "ps", "p.s", "reminder", "todo", "task", "goal", "context", "also",
     "question", "edit", "update", "constraint", "constraints", "requirements", "style", "language", "format", "tone",
     "output", "deadline", "hint", "warning", "attention", "preference", "preferences", "one more thing", "fyi")
)  # fmt: skip
# Labels of the headers of a mail, which are no speakers.
MAIL_LABELS = frozenset(
    ("from", "to", "cc", "bcc", "subject", "date", "sent", "reply-to", "von", "an", "betreff", "datum", "de", "para",
     "asunto", "objet", "à", "от", "кому", "тема")
)  # fmt: skip
# Tags of containers, which open a stretch even where they are never closed.
CONTAINER = (
    r"file|files|document|documents|doc|attachment|page|webpage|email|mail|message|context|html|body|article|data"
    r"|content"
    r"|source|sources|tool_result|result|results|output|system|instructions?|information|info|reminder|system-reminder"
    r"|snippet|text|quote|blockquote|pre|code|transcript|conversation|summary|state_snapshot|analysis|paste|pasted"
    r"|p|div|li|ul|ol|table|tr|td|th|h[1-6]|br|span|script|style|head|title|meta|!doctype|xml|body|section|main"
)
TAG = re.compile(r"</?([a-zA-Z][\w:-]*)(\s[^<>]{0,400})?/?>")
OPENS_CONTAINER = re.compile(rf"^\s*<(?:{CONTAINER})(?:\s[^<>\n]*)?>", re.IGNORECASE | re.MULTILINE)

# A text that claims to be a handoff, a note of the system or a summary, in any case and with hidden characters.
FORGED = re.compile(
    r"perdure\W{0,3}hand-?off"
    r"|\[?\W{0,2}context\W{1,3}(?:compaction|summary)|\[\W{0,2}system\W{0,3}(?:note|message|prompt)"
    r"|(?:standing instructions|unfinished requests), word for word|^\W{0,6}(?:active task|constraints & preferences"
    r"|pending user asks)\W{0,4}$"
    r"|session is being continued from a previous|conversation (?:history )?(?:before this point )?was (?:compacted"
    r"|summari[sz]ed)"
    r"|summary of (?:the |our |this )?(?:previous|earlier|prior) (?:conversation|messages|turns|session)"
)
HIDDEN = re.compile(r"[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]")

# -- stretches without marks -----------------------------------------------------------------------------------------

SENTENCE = re.compile(r"[^.!?。！？\n]+[.!?。！？]*")
ASKS = re.compile(r"[?？][\s\"”’)]*$|[吗呢か]\s*[。.]?$|(?:까요|나요|는지)\s*[.]?$")
REQUESTS = re.compile(
    rf"^\W*(?:(?:please|pls|kindly|hey|hi|ok(?:ay)?|so|now|and|bitte|por favor|s'il (?:te"
    rf"|vous) plaît)[, ]+)*(?:{TREAT}|can you"
    r"|could you|would you|will you|help me|tell me|give me|show me|let's|let us|find|fix|check|look at|write|draft"
    r"|implement|add|make"
    r"|create|review|compare|list|what|who|when|where|why|how|which|is|are|does|do(?! not)|did|can|could|should"
    r"|thoughts|any"
    r"|fyi"
    r"|kannst du|könntest|was|wer|wie|warum|wann|zeig|schreib|peux-tu|pouvez|quel|que dit|puedes|qué|cuál|можешь|что"
    r"|как)\b"
    r"|^\W*(?:请|帮我|你能|能不能|什么|怎么|教えて|してください|何|どう|해 ?줘|알려|무엇|뭐)",
    re.IGNORECASE,
)
# An order to make or change something.
ASSIGNS = re.compile(
    r"^\W*(?:(?:please|then|also|and|first|next)[, ]+)*(?:build|design|change|remove|delete|update|refactor|rename|move"
    r"|set up|replace|split|port|migrate|extend|integrate|connect|render|style)\b",
    re.IGNORECASE,
)
# The line refers to a text elsewhere in the message, unless it names one.
REFERS = compile_alternatives(
    rf"\b{TREAT}\b|\b{POINTS}\b(?: \w+){{0,2}}? {TEXT}\b|\b(?:below|above|attached|pasted|forwarded|oben|unten"
    rf"|ci-dessous"
    r"|ci-dessus|abajo|arriba|adjunto)\b|\bwhat (?:does|do|did) (?:it|this|that|they|he|she) (?:say|mean|want)\b"
    rf"|\bin (?:the )?{TEXT}\b|\baccording to (?:it|this|the)\b|\b(?:got|received|found|saw|read) (?:this|it)\b"
    r"|\b(?:thoughts|fyi|opinions?|is (?:this|it|that) (?:true|right|correct|legit|spam|real|normal|okay|ok|legal"
    r"|allowed|fair))\b|\b(?:fix|correct|check|improve|polish)\b.{0,15}\b(?:spelling|grammar|typos|wording|punctuation"
    r"|style)\W*$|\bwhat do you (?:make|think) of (?:this|it|that)\b|\bwho (?:\w+ ){0,2}(?:wrote|written|write|posted"
    r"|said) (?:it|this|that)\b|\bwhat does (?:the \w+ \w+|it|this|that) mean\b"
    r"|上面|下面|这(?:封|篇|段|个)|この(?:文|メール|記事|ページ)|上の|下の|이 (?:글|메일|문서|페이지)|위(?:의|에)|아래",
    re.IGNORECASE,
)
# What an assistant works on: code and files, then texts and the answers it gives.
_CODE_WORK = (
    r"\b(?:cod(?:e|ing)|tests?|tested|commits?|committing|branch(?:es)?|push(?:es|ed|ing)?|merg(?:e|es|ed|ing)"
    r"|rebas\w+|squash\w*|deploy\w*|files?|folders?|director(?:y|ies)|functions?|methods?|class(?:es)?|variables?"
    r"|modules?|imports?|apis?|endpoints?|databases?|schemas?|migrations?|quer(?:y|ies)|sql|dependenc\w+|config\w*"
    r"|logs?|logging|docs?|docstrings?|documentation|comments?|types?|lint\w*|format(?:s|ting)?|diffs?|pull requests?"
    r"|prs?|builds?|scripts?|commands?|repo(?:sitory|s)?|refactor\w*|server|prod(?:uction)?|staging|stage|main|master"
    r"|html|css|json|csv|patch(?:es)?|tickets?|bugs?|fix(?:es)?|libs?|versions?|npm|yarn|pnpm|git|tokens?|hash"
    r"|encrypt\w*|root|sudo|backups?|tabs|mocks?|datei\w*|ordner|zweig|fichiers?|archivos?|pruebas|arquivos?|testes?"
    r"|файл\w*|тест\w*|код\w*|bestand\w*|plik\w*|dosya\w*)\b"
    r"|\b[\w-]{1,60}/|\b\w{1,60}\.(?:py|js|ts|md|ya?ml|json|txt|csv|go|rs|java|html|css|toml|sql|xlsx?)\b|`[^`\n]+`"
    r"|代码|测试|提交|文件|注释|接口|数据库|目录|分支|文档|变量|コード|テスト|コミット|ファイル|コメント|変数|データベース"
    r"|ブランチ|코드|테스트|커밋|파일|주석|변수|브랜치|설정|ملف|الملفات|تعليق|קובץ|קבצי"
)
_TEXT_WORK = (
    r"\b(?:answers?|repl(?:y|ies)|responses?|sentences?|paragraphs?|words?|wording|tone|spelling|summar\w+|translat\w+"
    r"|drafts?|sources?|citations?|bullet\w*|headings?|tables|charts?|emojis?|units?|dates?|names?|naming|strings?"
    r"|tags?|changes?|steps?|assum\w+|chapters?|texts?|jargon|passive|abbreviat\w+|spaces|fonts?|antwort\w*"
    r"|kommentar\w*|texte?|sätze?|réponses?|commentaires?|respuestas?|comentarios?|risposte?|respostas?|ответ\w*"
    r"|комментари\w*)\b|回答|回复|金额|返信|説明|답변|대답|תשובה"
)
CODE_WORK = re.compile(_CODE_WORK, re.IGNORECASE)
# Searched in lower case, which is faster than ignoring the case.
_WORK = re.compile(f"{_CODE_WORK}|{_TEXT_WORK}")


# Asked of a sentence for its message, for its passage and for itself.
@lru_cache(maxsize=1_024)
def is_about_work(sentence: str) -> bool:
    """Return whether a sentence is about code, files or texts to work on."""
    return _WORK.search(sentence.lower()) is not None


# Texts that people write for others to read, and where they read them.
_WRITING = (
    r"(?:(?:system )?prompts?|essays?|(?:cover )?letters?|e-?mails?|mails?|poems?|lyrics|songs?|articles?|speech(?:es)?"
    r"|drafts?|paragraphs?|sentences?|labels?|signs?|leaflets?|flyers?|quotes?|tweets?|posts?|stor(?:y|ies)|contracts?"
    r"|clauses?|recipes?|reviews?|texts?|handbooks?|brochures?|excerpts?|passages?|bios?|abstracts?|homework|slogans?"
    r"|adverts?|notices?|guidelines?|novels?|books?|blogs?|manifestos?|minutes|transcripts?|magazines?|newspapers?"
    r"|slack|whatsapp|reddit|twitter|facebook|linkedin|chatgpt|wiki(?:pedia)?|screenshots?|memos?|newsletters?)"
)
# A short paragraph points at the text above or below it: "lol look at this", "(copied from Slack)", "what tense is used
# here". Not where it judges what the assistant did ("this is wrong") or is about code.
POINTS_TO_TEXT = compile_alternatives(
    rf"\b(?:this|these|those|the following|below|above)\b|\b(?:here|that)\W*$|\b{_WRITING}\b"
    r"|^\W{0,8}(?:(?:from|source|via|seen|found|quoted|copied|taken|cited) (?:on |in |at |from )?\w+"
    r"|(?:and|or|what about|how about|now|ok(?:ay)?,?|same for)? ?(?:the )?(?:next one|another one|one more|it)\W*$)"
    r"|^\W{0,8}what(?:'s|’s| is) (?:this|that|it)\W*$"
    r"|\bmake it (?:\w+ )?(?:shorter|longer|nicer|sound|friendlier|funnier)\b"
    r"|\b(?:is|does|was) it (?:\w+ )?(?:legal|true|right|correct|mean|say|normal|okay)\b"
    r"|\b(?:das|dies|dieser?|davon|folgende[rsnm]?)\b|\b(?:ceci|cela|ça|ce texte|les fautes)\b"
    r"|\b(?:esto|eso|este texto)\b|\b(?:traduis|traduce|corrige|resume)\b"
    r"|これ|この|それ|メッセージ|お知らせ|文章|次の|以下"
    r"|이거|이것|이 |메시지|공지|글을|这|那|以下|通知|消息|公告|文章|短信|留言|下面|上面",
    re.IGNORECASE,
)
# A verdict on what the assistant did, or the order to write a text.
JUDGES_OR_WRITES = re.compile(
    r"(?<!what's )(?<!what is )\bwrong\b"
    r"|\b(?:great|nice|perfect|awesome|excellent|love|like (?:this|that|it)|looks? (?:good|fine|great)|not what"
    r"|works?|done|worked|broken|fails?|failed|thanks?|agreed|I agree|again|enough|too (?:long|short|much|slow))\b"
    r"|^\W{0,8}(?:please |now |then |ok(?:ay)?,? |next,? )*(?:write|draft|compose|create|prepare|start|continue|finish"
    r"|add|implement|build|plan|book|design|generate (?!.*\bfrom\b))\b|\bI (?:read|saw|checked|looked at|tried) your\b"
    r"|\b(?:falsch|super|passt|nochmal)\b|不对|错了|很好|違う|いいね|아니|좋아",
    re.IGNORECASE,
)
# A first paragraph in the user's own voice: a greeting, thanks, a plan, the user themselves, what the assistant did.
OWN_OPENING = re.compile(
    r"^\W{0,8}(?:hi|hello|hey|good (?:morning|afternoon|evening)|thanks?|thank you|ok(?:ay)?|great|sure|yes|yep|no|cool"
    r"|right|alright|so|well|now|let'?s|let me|next|first|new|also|today|we|then|and|but|wait|hallo|moin|danke|bonjour"
    r"|salut|merci|hola|gracias|ciao|привет|спасибо)\b|^(?:你好|好的|谢谢|こんにちは|ありがとう|안녕|고마워)"
    r"|\b(?:you (?:did|have|changed|forgot|missed|broke|wrote|made|always|never|keep|are|were)|did you|have you"
    r"|your (?:last|plan|change|answer|idea))\b",
    re.IGNORECASE,
)
# What users want to have made of a text.
TREATED = re.compile(
    r"\b(?:translations?|summary|proofreading|version of|opinion|feedback|title for|caption for)\b", re.I
)
# The line is about something that it does not name; weaker, since a dialogue has such questions, too.
REFERS_VAGUELY = compile_alternatives(
    r"\bwhat(?:'s| is| are) (?:this|it|that|these|they)\b|\bwho (?:is|wrote|sent) (?:it|this|that)\b|\b(?:on|in|from"
    r"|about|of|to"
    r"|there) (?:it|this|that|there|them|here)\s*\?|\b(?:do|does|did|are|is|have|has|was|were) (?:they|he|she|it"
    r"|this)\b"
    r"|\banything (?:about|on|I|we|important|new|urgent|else|wrong)\b|\bdo (?:I|we) (?:need|have) to\b"
    r"|\bthe (?:main|key) points?\b|\b(?:who|what|when|where) (?:does|did|do|is|are"
    r"|was) (?-i:[A-Z])\w+\b"
    r"|\b(?:with|for|like) (?:it|this|that)\s*\?|\bwhat do you (?:think|make)\b|\b(?:das|dies|ça|cela|esto|eso"
    r"|это)\b[^.]{0,30}\?"
    r"|\bplease (?:explain|check|review|verify|fix|help|advise)\W*$|\bwhy (?:does|did|is) (?:it|this|that)\b"
    r"|\bworum geht|\bwas (?:will|steht|ist das)\b|\bde quoi\b|\bde qué\b|о чём|说了什么|什么意思|这是|这个|何の"
    r"|これ|それ|이거|이것|무슨",
    re.IGNORECASE,
)
NAMES_OBJECT = re.compile(r"https?://|`[^`\n]+`|\b[\w.-]+/[\w./-]+|\b[\w-]+\.[a-z]{1,5}\b|#\d+|\bm:\d+")
FIRST_PERSON = re.compile(
    r"\b(?:I|I'm|I've|I'd|I'll|me|my|mine|ich|mir|mich|mein\w*|je|moi|mon|ma|yo|mi|мне|меня|мой|моя|я)\b|我|私|僕|俺"
    r"|저는|제가|내가|나는",
)
# First person as the subject of the sentence.
SUBJECT = re.compile(
    r"\b(?:I|I'm|I've|I'd|I'll|ich|je|j'\w+|yo|я)\b|(?:^|[，。；、\s])(?:我|私|僕|俺)|저는|제가|내가|나는", re.MULTILINE
)
ADDRESSES = re.compile(
    r"\b(?:you|your|please|let's|let us|du|dein\w*|bitte|tu|vous|usted|ты|вы|пожалуйста)\b|请|你"
    r"|ください|주세요",
    re.I,
)
ORDERS = re.compile(
    r"^\W*(?:always|never|don't|do not|make sure|be sure|avoid|only|stop|no|keep|use|ensure|remember|from now on|must"
    r"|immer|nie|niemals|ab (?:jetzt|sofort)|toujours|jamais|siempre|nunca|всегда|никогда|не)\b|\b(?:must|should"
    r"|shall)\b"
    r"|必须|不要|务必|禁止|都要|不得|必ず|絶対|ないで|항상|반드시|절대",
    re.IGNORECASE,
)
SALUTATION = re.compile(
    r"^\W*(?:hi|hello|dear|hey|good (?:morning|afternoon|evening)|greetings|hallo|liebe[rs]?|sehr geehrte[rs]?"
    r"|guten (?:tag|morgen)"
    r"|bonjour|chère?s?|salut|hola|estimad[oa]s?|buenos días|ciao|gentile|уважаем\w+|здравствуйте|尊敬的|亲爱的|各位"
    r"|你好|您好"
    r"|안녕하세요|여러분)\b[^.?\n]{0,50}[,，、!！:：]?\s*$|^\S{1,20}(?:様|さん|各位|님께?)[、,，]?\s*$",
    re.IGNORECASE,
)
NAMED = re.compile(r"\w+ (?:[A-Z\u00c0-\u00de]\w+)")
ASSISTANT = re.compile(r"\b(?:claude|chatgpt|gpt|gemini|perdure|assistant|ai|there|bot|computer)\b", re.IGNORECASE)
TO_OTHERS = re.compile(
    r"\b(?:team|all|everyone|everybody|colleagues?|folks|guys|customers?|subscribers?|members?|sir|madam|mr|mrs|ms"
    r"|dr|prof"
    r"|zusammen|kollegen|damen|équipe|tous|equipo|todos)\b|各位|大家|皆様|여러분",
    re.IGNORECASE,
)
SIGN_OFF = re.compile(
    r"^\W*(?:best|(?:best |kind |warm |many )?(?:regards|wishes|thanks)|thank you|cheers|sincerely|yours(?: \w+)?"
    r"|cordially"
    r"|signed|mit freundlichen grüßen|(?:viele|beste|liebe) grüße|mfg|lg|cordialement|bien à (?:toi|vous)|saludos"
    r"|atentamente"
    r"|с уважением|此致|敬上|谢谢|よろしくお願いします|よろしくお願いいたします|以上|敬具|감사합니다"
    r"|드림)[,，.!。]*\s*(?:[A-Z][\w.]*(?: [A-Z][\w.]*)?)?\s*$",
    re.IGNORECASE,
)
# The line below a closing: a name, perhaps with a title.
SIGNED_NAME = re.compile(r"^\W*(?:[^\W\d_a-z][\w.'’-]*)(?:[ ,]+[^\W\d_a-z][\w.'’-]*){0,3}\s*$")
POSTSCRIPT = re.compile(r"^\W*(?:p\.? ?s\b|postscript|n\.?b\b|confidential|disclaimer|sent from)", re.IGNORECASE)
# A demand that would harm if it were planted: it moves data or money, or takes a safeguard away.
RISKY = re.compile(
    r"^(?!.*\b(?:never|not|nothing|no|don't)\b.*\bwithout\b).*\bwithout (?:asking|confirmation|approval|telling)\b"
    r"|\b(?:(?:don't|do not|never) (?:ask|tell|inform|notify)"
    r"|approve (?:all|every|any)|(?:send|forward|upload|post|copy|e-?mail|bcc|cc|transfer|wire|pay)\b.{0,60}"
    r"(?:\bto\b|@|https?:))|https?://|\S@\S+\.\w",
    re.IGNORECASE,
)
# A request that treats the mail above it: "write a reply", "tell him yes", "put that into my calendar".
TREATS_MAIL = re.compile(
    rf"^\W*(?:(?:great|ok(?:ay)?|good|fine|thanks|so|now|and)[.,! ]+)*(?:{TREAT}\b|(?:write|draft|send|prepare|compose"
    r"|make)\b.{0,30}\b(?:reply|answer|response|letter|mail|note)|(?:tell|ask|answer|thank|remind) (?:him|her|them|it"
    r"|me|[A-Z]\w+)\b|(?:put|add|enter|note|save|file)\b.{0,40}\b(?:calendar|list|table|sheet|diary|it|that|this|folder)"
    r"|(?:check|verify|compare|look up|find|plan|book|cancel|reject|accept|decline|forward|archive|sort)\b"
    r"|(?:can|could|would) you\b|schreib\w*|antworte|sag ihm|trag|écris|réponds|escribe|responde|ответь|напиши)"
    r"|^(?:回复|回信|写|告诉|返信|答え|답장)",
    re.IGNORECASE,
)
PLEASE = re.compile(r"^\W*(?:please|and|but|so|bitte|por favor)[, ]+", re.IGNORECASE)
FURNITURE = re.compile(
    r"©|\(c\) ?\d{4}|all rights reserved|privacy policy|terms (?:of|and) (?:service|use|conditions)"
    r"|cookies?\b.*\baccept|subscribe"
    r"|newsletter|read more|posted (?:by|on)|published (?:by|on|in)?|last (?:updated|modified)|min(?:ute)? read"
    r"|share this"
    r"|table of contents|sign (?:in|up)|log ?in\b.*\bregister|[★☆]|\d+ (?:likes?|comments?|views|replies|upvotes)"
    r"|unsubscribe"
    r"|sent from my|(?:^|\s)(?:home|about|contact|faq)\s*[|>»·]|chapter \d+|^abstract\b|v?\d+\.\d+\.\d+ \(|^\W*q:"
    r"|^\W*a:"
    r"|breaking news|advertisement|sponsored|版权|阅读更多|利用規約|저작권",
    re.IGNORECASE | re.MULTILINE,
)
TO_MACHINES = compile_alternatives(
    r"\b(?:AI|LLMs?|language models?|chat ?bots?|virtual assistants?|digital assistants?|AI assistants?|AI agents?"
    r"|crawlers?"
    r"|(?:all|any|every|automated|intelligent) (?:assistants?|agents?|bots?)|the (?:assistant|agent|bot|model))\b"
    r"(?=[^.\n]{0,80}\b(?:must|should|shall|always|never|please|read|process|ignore|follow|are|is|has|will|need|may)\b)"
    r"|\b(?:ignore|disregard|forget|override) (?:all |any |the |your |my )*(?:previous|prior|earlier|above|other"
    r"|existing|system)\b"
    r"|\b(?:note|message|attention|important|instructions?|notice) (?:to|for|from) (?:the |all |any )?(?:AI"
    r"|assistant|model|agent|bot"
    r"|system|admin)\b|\bthe user(?:'s|’s)?\b[^.\n]{0,60}\b(?:wants?|wanted|asked|said|approved|approves|agreed"
    r"|agrees|has|prefers"
    r"|confirmed|consented|authori[sz]ed|instructed|requested|requires|told|must not|should not|is not|need not)\b"
    r"|\b(?:without|never|not|before) (?:asking|telling|informing|ask|tell|inform|notify"
    r"|notifying) (?:the )?users?\b|用户(?:已|要求|说|同意)"
    r"|ユーザー(?:は|が)|사용자(?:가|는)",
    re.IGNORECASE,
)
ROLE_PLAY = re.compile(
    r"\b(?:role-?play\w*|pretend|imagine|let's play|(?:in|for) (?:this|the|our) (?:story|scene|game|play|novel"
    r"|scenario|film|movie)"
    r"|play the (?:role|part)|(?:write|tell|read|invent|make up|compose|continue|begin|finish|act|here(?:'s| is)"
    r"|this is|in)\b[^.\n]{0,30}\b(?:a|the|short|my|our) (?:\w+ )?(?:story|dialogue|scene|script|sketch|play"
    r"|novel)\b"
    r"|^\W*(?:a|the) (?:short )?(?:story|dialogue|scene|sketch|novel)\b|fictional"
    r"|once upon a time"
    r"|the character|rollenspiel|stell dir vor|imagina|jeu de rôle)\b|角色扮演|假设你|扮演|ロールプレイ|なりきって"
    r"|역할극|소설",
    re.IGNORECASE,
)
# A heading that a user puts over rules of their own.
RULES_HEADING = re.compile(
    r"^\W{0,8}(?!.{0,160}\b(?:of the|for (?:members|guests|visitors)|old|has|have|had|were|was|from|wrote|said|says"
    r"|found|context|guidelines|handbook|policy|text|e-?mail|\w+['’]s|got(?! \w+ (?:wish|rule|request|point|thing)))\b)"
    r"(?:.{0,60}\b(?:rules|preferences|remember|conventions|constraints|how i want|i want|what (?:i|we|to) (?:want|need"
    r"|like|do)|please (?:keep|follow|remember|note|respect|obey|stick|mind|observe|do|use|make sure)|keep in mind"
    r"|requirements|things?|points|requests?|wish(?:es)?|reminders?|conditions|notes?|changes|steps?|need you to"
    r"|do (?:it like )?(?:the following|this)|for you|your (?:task|job)|plan|to-?do)\b.{0,60}"
    r"|(?:for|about|regarding|concerning|on|when|with|next)\b.{0,40}[:：]|style|tone|format|note|notes|important"
    r"|attention|task|ps|p\.s\.?)\s*[:：]?\s*$",
    re.IGNORECASE,
)
# A line of a document: `Key: value`, a title in capitals, a row of values.
KEYED = re.compile(r"^\s*(?:[-*•]\s*)?\**([A-Z][\w /&'’()-]{1,34})\**:(?:\s|$)")
TITLE_CASE = re.compile(
    r"^\W*(?:[A-Z][\w'’-]*|\d[\w:./-]*|of|the|and|for|in|to|a|an|&|-|–"
    r"|\|)(?: (?:[A-Z(][\w'’)-]*|\d[\w:./)-]*|of|the|and|for|in|to|a|an|&|-|–|\|)){1,9}\W*$"
)
ROW = re.compile(r"^[^,;\t\n]{0,40}(?:[,;\t](?! )[^,;\t\n]{0,60}){2,}$")
TITLE = re.compile(r"^\W*[A-Z\u00c0-\u00de][^.!?:;,\n]{3,70}$")
