"""Recognise standing instructions: sentences that bind later work, in the languages people use.

Missing one is worse than quoting one too many: an instruction that is lost is broken. So a sentence counts by its
scope ("every", "only", "before each"), its mood ("must", "don't", "I'd rather") or its kind (a language, a style, a
limit, a name), and questions, remarks and requests for a single step do not.
"""

from __future__ import annotations

import re
from functools import lru_cache

from perdure.context.user_text.alternatives import compile_alternatives

_PLEASE = (
    r"^(?:(?:please|pls|plz|kindly|also|and|but|so|then|ok(?:ay)?|oh|just|well|again|note|ps|fyi|btw|by the way|yo|hey"
    r"|lol|wtf|ugh|nice|cool|great|no+|yes|yeah|sure|right|fine|good|perfect|alright|um+|as before|por favor|bitte"
    r"|next time|(?:in|for) (?:the )?future|for next time|for now|one more thing|actually"
    r"|for (?:heaven|god)'?s sake|seriously|that's why|therefore|while you are at it|personally)[,:;.!]* +)*"
)
_LANGUAGES = (
    r"(?:english|german|french|spanish|italian|portuguese|dutch|polish|turkish|russian|ukrainian|japanese|korean"
    r"|chinese"
    r"|mandarin|arabic|hindi|british|american|deutsch|englisch|französisch|spanisch|italienisch|japanisch|chinesisch"
    r"|français|anglais|allemand|espagnol|español|inglés|alemán|francés|inglês|português|italiano|inglese"
    r"|английск\w+|русск\w+|немецк\w+|французск\w+)"
)
_EVERY = (
    r"(?:all|every|each|everything|everywhere|any|always|only|never|whenever|both|at (?:most|least)|no more than"
    r"|up to \d+"
    r"|under \d+|below \d+|within \d+|less than \d+|fewer than|instead of|rather than|, not\b|throughout|consistently"
    r"|nothing (?:else|but)|no other|not only|as you go|exactly as|as (?:it|they) (?:is|are)|next time|ever\b"
    r"|before (?:each|every|any|you|committing|pushing)|after (?:each|every|any|you)|from now|in (?:the )?future|until)"
)
# An imperative about a manner: it binds where its object is a kind of thing, without an article or a name.
_MANNER = (
    r"(?:write|use|name|format|spell|quote|number|prefix|indent|round|skip|omit|include|mention|cite|treat|refer"
    r"|address"
    r"|phrase|structure|order|sort|group|wrap|log|document|comment|handle|return|store|put|place|mark|label|abbreviate"
    r"|capitali[sz]e|express|state|present|report|speak|talk|reply|answer|respond|work|code|start|call|give|round"
    r"|avoid)"
)
_NAMED_THING = (
    r"(?:the|this|that|these|those|a|an|it|them|him|her|option|line|file|test|function|\S*[/._`()\d]\S*"
    r"|\w+(?-i:[A-Z])\w*)"
)
# An imperative for one step, which binds only with a word of scope.
_STEP = (
    r"(?:write|use|put|keep|run|make|name|format|do|add|show|document|test|log|store|return|send|include|prefix|mark"
    r"|treat"
    r"|leave|wrap|sort|limit|handle|check|verify|update|commit|push|answer|reply|respond|explain|report|save|print"
    r"|round"
    r"|quote|cite|link|list|give|start|begin|end|finish|sign|address|assume|convert|encrypt|validate|escape|pin|tag"
    r"|squash"
    r"|rebase|restart|change|edit|touch|modify|call|ask|tell|warn|confirm|speak|write|book|charge|refund|order|pay"
    r"|reserve|refer|read|look|review|rename|delete|remove|create|move|merge|deploy|install|translate|summari[sz]e|work"
    r"|split|flag|query|open|close)"
)
# Requests for one step: "I'd like to cancel".
_ONE_STEP = (
    r"(?:know|adjust|proceed|cancel|book|upgrade|downgrade|return|reschedule|speak|ask|buy|inquire|schedule|transfer)"
)
_ENGLISH = (
    r"\b(?:from now on|from here on|from (?:today|tomorrow) on|as of (?:now|today)|starting (?:now|today)"
    r"|going forward|in (?:the )?future\b|henceforth|at all times|under no circumstances"
    r"|every time (?:you|we|I)|each time you|whenever you|no matter what|for the rest of|until (?:further notice|I say"
    r"|you hear)|as a rule|by default|without exception|on no account|for good|permanently)\b",
    # Duty and permission with a subject that lasts.
    r"\b(?:you|it|they|everything|code|tests?|commits?|answers?|replies|names?|\w+s)"
    r" (?:(?:must|should|shall|need to|have to|are to|ought to)(?: \w+)? (?:always|never|only|not|be|stay|have|use|go)"
    r"|(?:may|can)(?: \w+)? (?:always|never|only|not))\b",
    r"\b(?:must|should|shall) (?:always|never|stay|remain|keep|not)\b|\bmust(?:n't| not) \w+",
    r"^(?!(?:I|it|there|that|this|he|she|the build|the bug)\b)[^.!?]{0,80}\bmust(?: not)? (?!have\b|be (?:a|an|some"
    r"|the)\b)\w+",
    rf"{_PLEASE}(?:all|every|each|any|no|nothing|none|everything|everyone|nobody|no one|your|our)\b[^.?!]{{1,80}}"
    r"\b(?:must"
    r"|should|shall|may|might|cannot|can't|can|needs?"
    r"|has to"
    r"|have to|are to|is to|goes?|stays?|gets?|requires?)\b",
    rf"{_PLEASE}(?:do not|don't|dont|never|do not ever|don't ever|don't you ever|always|make sure|be sure|ensure|avoid"
    rf"|no longer|refrain|(?:stop|quit|cease) \w+ing|no more)\b|\bnext time\b",
    r"[,;:–—]\s*(?:and |but |so |please )*(?:always|never|do not|don't|make sure|be sure|avoid|no (?:more )?\w+ing)\b",
    r"\b(?:please|and|but|also|so|then)[, ]+(?:always|never|don't|do not|make sure|be sure|avoid|only \w+|no \w+ing)\b",
    rf"{_PLEASE}only (?:ever )?\w+\b|{_PLEASE}stop \w+ing\b|{_PLEASE}no (?:more )?\w+ing\b|{_PLEASE}prefer\b",
    rf"{_PLEASE}{_STEP}\b(?:[^.!?]|\.(?=\w)){{0,120}}{_EVERY}",
    rf"{_PLEASE}use [\w./+#-]+(?: [\w./+#-]+)?(?:, not| and not| over| instead) \w+|{_PLEASE}use .{{2,60}} everywhere",
    rf"{_PLEASE}(?:be|stay|remain) (?!right|there|back|a\b|the\b|it\b)\w+(?:[,.! ]|$)|{_PLEASE}stick (?:to|with)\b"
    rf"|{_PLEASE}leave (?:\S+ ){{1,5}}(?:alone|(?:exactly )?as (?:it|they)|untouched|out|in place)\b"
    rf"|{_PLEASE}keep (?!going|on\b|at it)\w+|[,;] (?:so|and|but) (?:be|keep|stay|use|avoid|no)\b",
    rf"{_PLEASE}(?:ask|check with|consult|tell|warn|inform|notify|wait for|get) (?:me|my|us|our"
    rf"|(?-i:[A-Z])\w+)\b[^.?]{{0,30}}"
    r"\b(?:before|first|when|if|whenever|ok|okay|approval|confirmation|go-ahead|consent|permission)\b",
    r"\bneeds? (?:my|our) (?:approval|ok|okay|consent|permission|sign-?off|confirmation)\b|\bmy (?:confirmation"
    r"|approval)\b",
    r"^(?:and |but |so )*(?:when|whenever|once) (?:you|we|I|it)\b[^.?]{2,60}\b(?:always|never|please|make sure)\b",
    rf"{_PLEASE}(?:say|tell|ask|stop|wait|warn|flag|mark|skip|leave|use|give|answer|mention)\b[^.?]{{0,60}}"
    r"\b(?:when|whenever|unless|until) (?:you|I|we|a|an|it|they|some)\b|^nothing (?!to|is|was|works|happen|new|else"
    r"|changed|special)\w+|\bat (?:most|least) (?:one|two|three|four|five|six|ten|twelve|twenty|\d)",
    rf"^(?:before|after|when|whenever|unless|once|while|if|in case|as soon as|as long as|should you) [^,?]{{3,80}}, "
    rf"(?:please |then |first |always |you (?:must|should|may|can) |just )*(?:{_STEP}|{_MANNER}|do not|don't|never|no"
    r"|nothing|be|stop|wait|skip|prefer|keep|let|I(?:'d| would)? (?:want|prefer|like|expect|rather))\b"
    r"|^(?:before|after|in|for|with|on) (?:all|every|each|any)\b|, nothing (?:gets|is|may|goes)\b"
    r"|\w+s always (?:with|in|as|at|on|have|go|use)\b|\bas (?:the|our) (?:limit|standard|rule|default|maximum)\b"
    r"|^you (?:may|can|are (?:allowed|free) to) (?!see|tell|imagine)\w+|\b(?:is|are) \w+ in (?:all|every)\b",
    rf"{_PLEASE}{_MANNER} (?:(?!{_NAMED_THING}\b)[\w'-]+[ ,]*){{1,3}}(?:[.!]|$|\b(?:in|as|by|with|without|like|for"
    rf"|when|first)\b)",
    r"\byour (?:answers?|replies|reply|responses?|messages?|commits?|code|steps?|comments?|summar(?:y|ies)"
    r"|explanations?|tone)\b",
    r"\b(?:off[- ]limits|hands off|read-only|frozen|forbidden|prohibited|not (?:allowed|permitted|acceptable"
    r"|negotiable|an option"
    r"|to be)|unacceptable|mandatory|compulsory|non-negotiable|taboo|confidential)\b|^(?:whatever you do"
    r"|when in doubt)\b",
    r"^[\w -]{2,40}, not [\w -]{2,40}[.!]?$|^(?:one|two|three|max\w*|only|exactly|no) [\w -]{2,40} (?:per|for each"
    r"|at a time)\b",
    r"\bso no \w+|\bI (?:can't|cannot|can not|mustn't|won't|may not) (?:eat|drink|fly|use|have|pay|travel|accept"
    r"|work|attend|read"
    r"|stand|afford|see)\b|\bI(?:'d| would) like (?:you|your|my|all|every|short|it if)\b|\bdon't you dare\b",
    r"\bI (?:need|want|expect) [\w ]{2,40} (?:for|with|on|in|from|before|after) (?:any|every|all|each)\w*"
    r"|^let me (?:review|see|approve|check|confirm|decide|test|read)\b.*\b(?:first|before|every|each|any|all)\b"
    r"|\bwe(?:'re| are) (?:on|using|limited to|stuck with|bound)\b|\bI (?:speak|read|live|work|am based|prefer"
    r"|use)\b(?! like)",
    # Wishes and habits.
    rf"\bI(?:'d| would)? (?:really |much |also )?(?:prefer|rather|like (?:it|my|your|short|long|the"
    rf"|to (?:(?!{_ONE_STEP}\b)|(?=\w+[^.?!]{{0,80}}\b{_EVERY}\b)))|love it|hate|dislike"
    r"|expect|insist|want (?:you to|no|only|all|every|everything|your|it to)|want (?:\w+ ){1,3}to (?:be|stay|have"
    r"|use))\b",
    r"\bI (?:don't|do not|never) (?:want|like|need|wish|care|allow|accept|eat|drink|fly|use)\b"
    r"|\bI like (?:short|long|plain|simple|concise|detailed|my|your|when)\b|\bI only (?:want|use|eat|fly|accept"
    r"|need|read|speak|have|drink|work|pay)\b|\bI (?:want|would like|'d like) to be (?:called|asked|told)\b"
    r"|\bnot an? \w+ more\b|\bI need (?:everything|all|every|it all)\b",
    r"(?<!\bif )\bwe (?:don't|do not|never|always|only) (?!know|think|see|have to worry)\w+"
    r"|\bour (?:convention|policy|style"
    r"|rule) is\b",
    r"\blet's (?:keep|stick|always|never|not|avoid|only|agree)\b|\bit(?:'s| is) (?:important|essential"
    r"|crucial) (?:that|to)\b",
    r"\bI'd rather you\b|\bcall me (?-i:[A-Z])|\bmy (?:name|preferred|favou?rite|pronouns)\b[^.?]{0,30}\b(?:is|are)\b",
    r"\bI(?:'m| am) (?:allergic|vegetarian|vegan|colou?r-?blind|left-handed|a beginner|new to|diabetic|pregnant)\b",
    r"\bno [\w -]{2,40}(?:,? please| at all| whatsoever| allowed| anywhere)\b|^(?:also |and |but |pls "
    r"|please )*no (?!problem"
    r"|idea|worries|need\?|rush"
    r"|thanks|one\b|doubt|wonder|way|luck|clue|big deal|funciona|es\b|hay\b|sé\b|puedo|está"
    r"|tengo)\w+(?: \w+){0,4}[.!]?$",
    r"\bno need to\b|\byou (?:don't|do not) (?:have|need) to\b|\bremember (?:to|that you)\b"
    r"|\b(?:please|and|but|also|so)[, ]+remember that\b|(?<!['’]ll )(?<!\bwill )\b(?:keep|bear) in mind\b"
    rf"|{_PLEASE}(?:remember|memori[sz]e|take note|make a note)\b(?! (?:when|how|the time|that time|me|us|I)\b)",
    r"\b(?:at most|no more than|not more than|maximum(?: of)?|max\.?|at least|minimum(?: of)?|not exceed"
    r"|go over) [$€£]?\d",
    rf"\b(?:answer|reply|respond|write|speak|talk|comments?|messages?|names?|docs?|text|spelling"
    rf"|use)\b[^.?]{{0,40}}\b{_LANGUAGES}\b|^\W*{_LANGUAGES} (?:only|spelling|please|everywhere|throughout)\b",
    # Conditions, limits and exceptions without a word of order.
    r"\bnobody \w+s without\b|\b(?:goes?|go|has to go|must go) through me\b|\bonly (?:bug ?|security )?fixes go in\b"
    r"|\b(?:has|have) to (?:pass|be \w+) before (?:every|each|any)\b|^ignore (?:everything|all|any\w*) (?:under|in"
    r"|below)\b"
    r"|^feel free to [^.?]*\bbut not\b|^\w+ shall (?:follow|use|be|have|stay)\b|\bonly,? (?:please|pls)\b"
    r"|\bup to \d+ (?:characters|words|lines|sentences|pages)[.!]?$|\b(?:is|are) enough for (?:any|every|all|each)\b"
    r"|\b(?:is|are) (?:capped|limited) (?:at|to) \W?\d|^(?:short|small|atomic|concise|terse) (?:commits?|answers?"
    r"|replies"
    r"|sentences|functions?|messages?|changes)[.!]?$",
    # Polite wishes.
    r"\bI(?:'d| would) (?:appreciate|be (?:grateful|glad|happy)|value)\b.{0,20}\bif\b|\bit would be (?:nice|great|good"
    r"|lovely|better) if\b|\bmay I ask you to\b|\bplease try to\b|\b(?:I'd|I would) (?:prefer|rather)\b",
)
_OTHERS = (
    # German
    r"\b(?:immer|nie|niemals|ab (?:jetzt|sofort|heute)|künftig|zukünftig|in zukunft|von nun an|jedes mal"
    r"|grundsätzlich|stets)\b"
    r"(?![^?]*\?)",
    r"^(?:bitte |und |aber |auch )*(?:benutz|verwend|nutz|nimm|schreib|antwort|änder|lösch|füg|mach|frag|halt"
    r"|vermeid|gib"
    r"|zeig|sprich|sag|lass|leg|lauf|führ|teste?|committe?|pushe?|fass|rühr|achte)\w*\b(?:[^.?]|\.(?=\w)){0,80}\b"
    r"(?:kein\w*|nicht|nichts"
    r"|nur|alle\w*|jede\w*|kurz|knapp|mich|mir|bevor|lieber|erst|vorher|in ruhe|auf \w+|ausschließlich)\b",
    r"^vor jede[mnr]\b[^?]{3,}\bdu\b|^(?:bitte )?(?:keine?\w*|nur|nicht|nichts)\b[^?]{3,}$|\b(?:duze|sieze"
    r"|nenn) mich\b|\bbitte (?:keine?\w*|nur"
    r"|nicht)\b",
    r"\b(?:muss|müssen|soll|sollen|sollte\w*|darf|dürfen|dürfte\w*)\b[^?]{2,}$|\bich (?:möchte|will|mag|bevorzuge"
    r"|hätte)\b[^?]{0,60}"
    r"\b(?:nicht|kein\w*|nur|lieber|gern|dass)\b|\bich bevorzuge\b|\bbevor du\b[^?]{3,}$"
    r"|\b(?:höchstens|maximal|mindestens)\b|\bwäre (?:es )?(?:mir )?(?:lieber|lieb|recht)\b|\bmir wäre\b",
    # Spanish, Portuguese, Italian, French
    r"\b(?:siempre|nunca|jamás|a partir de ahora|de ahora en adelante|toujours|jamais|désormais|dorénavant|sempre"
    r"|mai più"
    r"|d'ora in poi|daqui em diante|a partir de agora|dora em diante)\b",
    r"^(?:por favor,? |y |pero )*(?:nada de \w+|no (?:me |lo |la |los |las )?(?:us|utilic|toqu|cambi|borr|modifiqu"
    r"|escrib|agregu"
    r"|añad|hag|pong"
    r"|sub|ejecut|olvid|elimin|instal|incluy|respond|empuj|mezcl|cre|quit)\w*|usa|utiliza|responde|contesta|escribe"
    r"|evita"
    r"|mantén|pregúntame|avísame|llámame|solo|sólo|todos? l[oa]s?|todas?|cada)\b",
    r"\b(?:prefiero|quiero que|no quiero|me gusta\w*|pregúntame|avísame)\b|\b(?:debe|deben|debes|tiene que"
    r"|tienen que)\b",
    r"^(?:s'il te plaît,? |et |mais )*(?:n'\w+|ne \w+(?:-\w+)?) (?:pas|jamais|plus|rien|aucun\w*)\b|\bje (?:préfère"
    r"|veux que"
    r"|ne veux|souhaite|n'aime)\b|\b(?:demande-moi|préviens-moi|appelle-moi|évite|garde|utilise (?:seulement"
    r"|uniquement|toujours))\b"
    r"|\b(?:doit|doivent|tu dois|il faut)\b",
    r"^(?:per favore,? )?non \w+(?:are|ere|ire)\b|\b(?:preferisco|voglio che|non voglio|chiedimi|evita|devono|deve"
    r"|rispondi)\b",
    r"^(?:por favor,? )?não (?:us|toqu|mud|apagu|alter|modifiqu|escrev|faç|adicion|remov|exclu|esqueç)\w*\b"
    r"|\b(?:prefiro|quero que|não quero|pergunte-me|me pergunte|devem|deve)\b",
    r"\b(?:verwenden|benutzen|nutzen|schreiben|machen) wir\b|\b(?:niemand|alles|jeder|kein\w*) (?:darf|muss|soll"
    r"|wird)\b|\btabu\b",
    r"\b(?:en me? )?(?:tutoyant|vouvoyant)\b|\btutoie-moi\b|\b(?:trátame|tutéame|háblame|parlami|dammi del)\b"
    r"|\b(?:van|vanno|vont|se escriben|s'écrivent)\b[^?]{2,60}$|\b(?:prohibido|interdit|vietato|proibido)\b",
    # Russian
    r"\b(?:всегда|никогда|отныне|впредь|каждый раз|только|обязательно|нельзя|предпочитаю|должн\w+|перед (?:каждым"
    r"|удалением)"
    r"|не (?:надо|нужно|стоит))\b|\bне \w+(?:й|йте|ь|ьте)\b|\b(?:пиши|отвечай|используй|называй|спрашивай|говори)\w*\b",
    r"\bбез (?:моего|разрешения)\b|\bпо-(?:русски|английски|немецки)\b|\bзапрещено\b|\bничего не \w+",
    rf"\b(?:auf|en|in|на|em)\s+{_LANGUAGES}\b",
    # A fact to remember
    r"^(?:bitte |por favor,? |s'il te plaît,? |per favore,? |пожалуйста,? )*(?:merke? dir|denk(?:e? bitte)? daran"
    r"|vergiss nicht|retiens|souviens-toi|n'oublie pas|recuerda|ten en cuenta|no olvides|ricorda(?:ti)?|tieni presente"
    r"|non dimenticare|lembre-se|não esqueça|запомни\w*|не забудь)\b",
    # Dutch, Swedish, Danish, Norwegian
    r"\b(?:altijd|nooit|voortaan|alstublieft geen|gebruik geen|alltid|aldrig|alltid|fremover|hädanefter|altid|aldri)\b"
    r"|^(?:graag |alsjeblieft |vänligen )?(?:niet|inte|ikke|geen|inga|ingen)\b",
    # Polish, Czech, Ukrainian, Turkish, Hungarian, Indonesian, Vietnamese
    r"\b(?:zawsze|nigdy|od teraz|vždy|nikdy|завжди|ніколи|her zaman|asla|bundan sonra|artık|mindig|soha|selalu|jangan"
    r"|luôn|đừng)\b|^(?:proszę,? )?nie \w+(?:aj|uj|ij|yj|ń|eń)\b|^(?:prosím )?ne\w+(?:ej|uj|te)\b"
    r"|\b\w+m[ae]y?[ıi]n?[.!]?$",
    # Arabic, Hebrew, Persian, Hindi
    r"دائما|دائمًا|أبدا|أبدًا|من الآن فصاعد|يجب|(?:^|[\s،])لا ت\w+|תמיד|לעולם|מעכשיו|חובה|(?:^|\s)אל ת\w+|אסור|בבקשה"
    r"|همیشه|هرگز|لطفا|हमेशा|कभी नहीं|कृपया|मत ",
)
_CJK = re.compile(
    # Chinese
    "不要|不能|不可|必须|必須|务必|務必|总是|總是|始终|永远不|永遠不|从现在(?:开始|起)|從現在(?:開始|起)|从今(?:以后"
    "|往后)|今后|今後"
    "|以后|每次|每个|每一|一律|禁止|不得|不准|不许|不許|请记住|記住|记住|记得|別(?![のになとれ々途人格館荘])|(?<![特区分个性级差告识辨离道类])别(?!的|人|名|处)|只(?:能|用|使用"
    "|改|要|需|可)|(?<!不)仅(?!仅)|一定要|都要|全部|统一"
    "|尽量|盡量|更喜欢|不喜欢|偏好|喜欢|希望|请勿|之前(?:先|请|要|必|一)|前(?:先|要|请|必须)|先问|问我|告诉我之前|保持"
    "|(?:用|使用)(?:中|英|日|韩|德|法)(?:文|语)"
    "|(?:回答|回复|注释|代码|提交)[^。？]{0,12}(?:简短|简洁|用|要|请)|叫我|不超过|最多|至少|不用"
    "|所有|每(?:天|周|条|行|项)|称呼|以.{1,8}为(?:单位|准|主)|用.{1,10}(?:写|回答|回复|命名|表示)|按.{1,12}(?:格式"
    "|顺序|规范)|优先|不许|冻结|只读"
    # Japanese
    "|必ず|絶対|常に|これから(?:は|も)|毎回|決して|ないで(?!す|し[ょた])|ないこと(?!が|も|で)|てはいけ|てはなら|ちゃだめ|覚えておいて|以後|今後"
    "|だけ(?:を|に|で|使)|のみ|すべて|全て"
    "|(?:る|た|の)前に|なくていい|なくて(?:も)?(?:いい|よい|結構)|(?:英|日本|中国|韓国|ドイツ|フランス)語で|調で"
    "|敬語|短く|簡潔|こと。?$|でお願いします|ようにして|ほうが(?:いい|好き)"
    "|好みです|と呼んで|以内|以下に|禁止"
    "|(?:口|体|調|語|順|形式|単位|文字|風)(?:で|に)(?!すか)|全部|どんな(?:場合|時|とき|理由|状況|こと)|いかなる|触ら|許可なし|優先|読み取り専用"
    "|凍結|ずつ"
    # Korean
    "|항상|절대|반드시|앞으로|매번|지 ?(?:마|말)|금지|언제나|기억해|꼭|만 (?:사용|써|쓰|수정|변경)|모든|마다|기 전에"
    "|면 안 ?(?:돼|됩|되)|이내|짧게|간단히|간결"
    "|(?:영어|한국어|일본어|중국어|독일어)로|선호|좋아(?:해|합니다|요)|(?:라고|이라고) 불러|해야 ?(?:해|합|돼|됩)"
    "|원(?:해|합니다)|말고"
    "|모두|각각|(?:말|체|순서|형식|단위|식)(?:으)?로|(?:허락|확인|승인) 없이|건드리|우선|동결|읽기 전용|씩"
)
# The user's small talk and stories, in Japanese by their endings and in Chinese by their subjects. They may be
# remarks, but lay nothing down without a word of order or scope.
_CHATS = re.compile("(?:[ねよな][ぇえぁあー～〜っ]*|かなぁ?あ?|けど|のに|くて|んです(?:が|けど)?)[。！!…～〜、.\\s]*$")
_ORDERS = re.compile(
    "ください|下さい|お願い|てはいけ|てはなら|ちゃだめ|なさい|[てで]ほしい|て欲しい|必ず|禁止|今後は|これからは|絶対に|ないで[ねよ]"
)
_STATES = re.compile("(?:です|ます|ません|でした|ました|[っいえけせてねべめれ]た|ている|てる|と思う)[。！!…～〜.\\s]*$")
# What the user did or does themselves: "I always chose that hotel" lays nothing down.
_TELLS_OF_ONESELF = re.compile(
    "(?:ました|でした|てます|ています|たいです|思って[てるい]*(?:ます)?)(?:が|けど|し)?[。！!…～〜.\\s]*$"
    "|(?:です|ます|ません)(?:よ?ね|が|けど)(?:、?私は)?[。！!…～〜.\\s]*$|ですね、私は"
    "|(?:以后|以後|今后|今後|下次)(?:我|我们|我們)(?:会|會|可以|想|再|就|也)"
)
_ASKS_OTHERS = re.compile(
    "ください|下さい|お願い|てはいけ|てはなら|ちゃだめ|なさい|[てで]ほしい|て欲しい|禁止|今後は|これからは|ないで[ねよ]|呼んで"
)
_SCOPES = re.compile(
    "常に|毎回|決して|好み|ルール|優先|のみ|以内|以下|呼んで|敬語|[調語]で|だけ[をに使]|ずつ|ことにして"
)
_OWN_STORY = re.compile(
    "^(?:好的?|嗯|哈+|是的?|对|其实|但是?|哦|除了[^，]{1,12}|同时|而且|因为|所以|特别是?)?[，,、！! ]*"
    "(?:但|因为|所以)?(?:我们?|他们?|她们?|它们?|这|那|今天|昨天|最近|站在)"
)
_DEMANDS = re.compile(
    "你|您|请|請|必须|必須|不要|务必|務必|一律|不准|禁止|不得|一定要|都要|只(?:能|用|使用|要)|叫我|称呼|偏好|更喜欢|不喜欢"
    "|总是|始终|永远|从现在|每次|以后都|回答|回复|代码|注释|提交|文件|测试|格式|风格"
)
_BINDS = compile_alternatives("|".join(_ENGLISH), re.IGNORECASE, leads=(_PLEASE, "^", r"\b"))
# Searched in lower case, which is faster than ignoring the case.
_BINDS_ELSEWHERE = compile_alternatives("|".join(_OTHERS))
# Descriptions, not wishes: "it never works", "I don't know", "there must be a bug".
_DESCRIBES = compile_alternatives(
    r"\b(?:I|he|she|it|they|this|that|there|which|who|the \w+)"
    r"(?:'ve|'s|'d|'re| have| has| had| was| were| is| am| are| do| does| did)?"
    r"(?: (?!must|should|shall|may|can|will)\w+)? (?:always|never) (?!want|use|do\b|be\b|have\b|stay)\w+"
    r"|^(?:and |but |so |well, |hm+,? )*(?:I )?(?:don't|do not|didn't|can't) (?:know|think|see|understand|worry|mind"
    r"|you (?!dare|ever)|remember|get it|care\b)"
    r"|^(?:it|there|that|this|he|she|I) must\b|\bmust (?:have|be (?:a|an|some|the|because))\b|^no (?:problem|idea"
    r"|worries|rush)|^(?:talk|speak|see|catch)(?: (?:to|with|up))*(?: you)? (?:soon|later|then|tomorrow)\b"
    r"|\b(?:funktioniert|geht|läuft|klappt|stimmt) (?:\w+ )?(?:nicht|nie)|^no (?:funciona|es|hay|sé|puedo|está|tengo"
    r"|entiendo)\b"
    r"|\bça ne\b|^(?:das|es|ich weiß|ich verstehe) .*\bnicht\b|^keep (?:going|on|it up)\b|^(?:я )?не (?:знаю|понимаю"
    r"|работает|вижу)"
    r"|^if (?:the|a) user (?:\w+ed|\w+s)\b(?!.*\b(?:always|never|must|should|ask|tell|wait)\b)"
    r"|^(?:(?:no|yes|yeah|ok|well|hm+)[,.]? )?(?:let me|I'll|I will|I think|I guess|I feel|I believe|maybe)\b"
    r"(?!.*\b(?:always|never|prefer|you to|first|every"
    r"|before)\b)"
    # The user's own plan, an explanation, and a finding about code.
    r"|^I\b.*\bmake sure (?:that )?I\b"
    r"|^(?:like|e\.g\.|i\.e\.|for example|in theory|meaning|which)\b"
    r"|\b(?:is|are|was|were|gets?)\b(?:[^.!?]|\.(?=\w)){1,80}\bbut (?:(?:it|they|is|are|was|were) )?"
    r"(?:always|never)\b",
    re.IGNORECASE,
)
# A question without its mark, and a story that leads to a question: the user asks for help or advice.
_SEEKS_HELP = compile_alternatives(
    r"^(?:so |and |but |ok(?:ay)?,? )*(?:how|why|what|where|which|who) "
    r"(?:can|could|do|does|did|is|are|should|would|will|may|might)\b"
    r"|\b(?:can|could|would) you (?:please )?(?:help me|suggest|recommend|advise|give me (?:some|any))\b"
    r"|\bI(?:['’]m| am| was|['’]ve been) (?:wondering|curious|thinking about (?:how|what|whether)|trying to figure)\b"
    r"|\bI(?:['’]d| would) (?:like|love) to (?:know|hear|learn|understand)\b"
    r"|\b(?:any|some) (?:advice|suggestions|tips)\b"
    r"|\b(?:kannst|könntest) du mir helfen\b|\b(?:peux|pourrais)-tu m'aider\b|\b(?:puedes|podrías) ayudarme\b",
    re.IGNORECASE,
)
# An order, whatever it describes: "make sure that the links are never broken".
_COMMANDS = re.compile(rf"{_PLEASE}(?:make sure|be sure|ensure|always|never|do not|see to it)\b", re.IGNORECASE)
_ASKS = re.compile(r"[?？]\s*[\"”’)]*$|[吗呢]\s*[。.]?$|ですか[。.]?$|ますか[。.]?$|(?:까요|나요|니까|는지)\s*[.]?$")
# A question in form only: "Can you please always show the diff before committing?"
_ASKS_POLITELY = re.compile(
    r"^(?:(?:please|and|but|also|so|ok(?:ay)?|hey|hi)[, ]+)*(?:(?:can|could|would|will) (?:you|we)(?: please| kindly)? "
    r"(?:always|never|only ever|from now on)\b|(?:can|could|would|will) you (?:please|kindly) "
    r"(?:not|avoid|stop|refrain)\b"
    r"|(?:would|do) you mind (?:always|never|not)\b"
    r"|(?:may|can|could) I ask you (?:to|not to)\b|.*\b(?:from now on|from here on|in (?:the )?future|going forward"
    r"|every time|next time)\b"
    r"|(?:kannst|könntest|würdest) du (?:bitte )?(?:ab jetzt |in zukunft )?(?:immer|nie|niemals|nicht mehr)\b"
    r"|(?:peux|pourrais)-tu (?:s'il te plaît )?(?:toujours|ne jamais|ne plus)\b"
    r"|(?:puedes|podrías) (?:por favor )?(?:siempre|no volver a|nunca)\b)",
    re.IGNORECASE,
)
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,2}[.)])\s+")
# An item of a task list ("3. Make logs-only tests deterministic") binds by words of scope alone.
_NUMBERED = re.compile(r"^\s*\d{1,2}[.)]\s")
_COMPOUND = re.compile(r"\b\w{1,40}-only\b")
_LONGEST = 500
_SHORTEST = 4


# A request for one step: a verb of work on something particular.
_WORK = (
    r"(?:add|fix|run|read|look|check|show|open|find|search|explain|tell|give|make|create|write|update|change|rename"
    r"|move"
    r"|delete|remove|revert|undo|merge|rebase|commit|push|deploy|build|test|try|start|stop|restart|install|implement"
    r"|refactor"
    r"|review|compare|analy[sz]e|summari[sz]e|list|print|send|book|cancel|draft|translate|proof-?read|debug|investigate"
    r"|continue|go|do|put|get|set|see|use|call|load|save|download|upload|extract|generate|replace|split|clean"
    r"|document|help"
    r"|port|migrate|convert|finish|complete|figure|prepare|design|plan|improve|optimi[sz]e|rewrite|speed|reduce"
    r"|increase|enable"
    r"|disable|bump|upgrade|downgrade|lint|measure|profile|benchmark|turn|take|bring|connect|wire|drop|kill|clone"
    r"|release|publish"
    r"|submit|close|reopen|answer|reply|let's|now|next|then|first|step \d+|part \d+|also)"
)
# So many words before the order: "then" may belong to either group, and be an order itself.
_STEP_OF_WORK = (
    rf"^(?:(?:good|great|nice|fine|alright|perfect|yes|no|well|cool|right)[,.!]? +)?{_PLEASE[1:-1]}{{0,8}}"
    rf"(?:now |then |next |first |can you |could you |would you |I want you to |I need you to "
    rf"|let's ){{0,4}}{_WORK}\b[^.]{{0,40}}"
)
_NAMES = (
    r"\b(?:the|this|that|these|those|a|an|it|them|me|again|now|module|step|part|file|line|test)\b|\d"
    r"|[\w-]+[/.][\w./-]+|\w+_\w+|`"
)
_ORDERS_STEP = re.compile(rf"{_STEP_OF_WORK}(?:{_NAMES}|\w{{3,}})", re.IGNORECASE)
_PARTICULAR = re.compile(rf"{_STEP_OF_WORK}(?:{_NAMES}|(?-i:[a-z][A-Z]))", re.IGNORECASE)
_PARTICULAR_CJK = re.compile(
    "一下|吧[。！]?$|^(?:请|帮我|现在|然后|接着|再)?(?:修复|检查|看|运行|执行|添加|加|写一|改一|删除|解释|查|打开|读"
    "|比较|翻译|总结)"
    "|(?:を|も)(?:直し|見|実行|追加|教え|修正|確認し|読|調べ|説明し|開|比較|翻訳|要約)(?:て|で)|(?:을|를"
    "|도) ?(?:고쳐|봐|실행|추가|알려|수정해|확인해|읽어|찾아|설명|열어|비교|번역|요약)"
)
# What happened or is so: a report of a problem, a guess, a personal story.
_REPORTS = compile_alternatives(
    r"\b(?:was|were|did|didn't|had|got|went|tried|changed|made|saw|found|noticed|happened|broke|crashed|failed|fails"
    r"|failing"
    r"|misleading|lacks?|outdated|works|worked|working|doesn't|isn't|aren't|wasn't|won't|looks|seems|appears|think"
    r"|thought|guess|wonder\w*"
    r"|maybe|probably"
    r"|sorry|thanks|thank|great|nice|cool|perfect|awesome|hello|hi|hey|yes|yeah|ok|okay|sure|hm+|lol|wow)\b"
    r"|\bI(?:'ve| have| just| am| was)\b|\bit(?:'s| is)\b|\bthere(?:'s| is| are)\b|\b(?:error|exception|traceback"
    r"|warning)\b"
    r"|\b(?:funktioniert|geht|war|hatte|ist kaputt|danke|hallo|gracias|hola|merci|bonjour|спасибо|привет)\b"
    r"|了[。！]?$|谢谢|你好|失败|报错|ました|でした|ありがとう|こんにちは|エラー|失敗|했어|했습니다|었어|감사|안녕"
    r"|오류|실패",
    re.IGNORECASE,
)
# A question without its mark, a note of a client, a bare path.
_NO_REMARK = re.compile(
    r"^\W*(?:he|she|they|why|how|what|who|when|where|which|can|could|would|should|shall|is|are|does|do|did|will|any"
    r"|isn't|wieso"
    r"|warum|wie|was"
    r"|kannst|könn\w+|pourquoi|comment|peux|qué|cómo|por qué|puedes|почему|как|что|можешь)\b|^[\[<'\"/~]|^\S+$|\?",
    re.IGNORECASE,
)
_LONGEST_REMARK = 200
_FEWEST_CHARS = 12


@lru_cache(maxsize=1_024)
def may_bind(sentence: str) -> bool:
    """Return whether a sentence may lay something down, though no known wording shows it.

    Not a question, not a request for one step, not a report and not small talk: "invoices go out on Fridays".
    """
    plain = _BULLET.sub("", sentence).strip()
    least = _FEWEST_CHARS if plain.isascii() else _FEWEST_CHARS // 2
    if not least <= len(plain) <= _LONGEST_REMARK or _ASKS.search(plain) or plain.endswith((":", "：")):
        return False
    if _NUMBERED.match(sentence):
        return False
    if _NO_REMARK.search(plain) and plain.isascii():
        return False
    if _REPORTS.search(plain) or _ORDERS_STEP.search(plain) or _DESCRIBES.search(plain):
        return False
    return plain.isascii() or not (_PARTICULAR_CJK.search(plain) or is_small_talk(plain))


def is_small_talk(sentence: str) -> bool:
    """Return whether a sentence only makes conversation, by the particles at its end."""
    return not sentence.isascii() and _CHATS.search(sentence) is not None and _ORDERS.search(sentence) is None


@lru_cache(maxsize=1_024)
def orders_step(sentence: str) -> bool:
    """Return whether a sentence asks for one step of work."""
    return _ORDERS_STEP.search(_BULLET.sub("", sentence)) is not None


def is_particular(sentence: str) -> bool:
    """Return whether a sentence asks for one step of work on something particular."""
    return _PARTICULAR.search(_BULLET.sub("", sentence)) is not None


# The plain forms of a rule, whatever it is about.
_CLEAR = re.compile(
    r"^(?:[-*•]\s+)?(?:(?:please|pls|also|and|but|so|then|ok(?:ay)?|btw|by the way|in general|first|second|third"
    r"|finally"
    r"|one more thing|bitte|außerdem|übrigens|und|grundsätzlich|et|aussi|au fait|s'il te plaît|por cierto|además|y"
    r"|por favor|per favore|inoltre|e|por favor|кстати|и|пожалуйста)[,:;.]*\s+){0,3}"
    r"(?:(?:always|never|(?:don['’]t|do not) ever|from (?:now|here) on|in (?:the )?future|going forward"
    r"|under no circumstances"
    r"|do not|don['’]t|only)\b"
    r"|(?:every|each|all|any|no) [^,;:.!?]{1,60}\b(?:must|needs?|has to|have to|may)\b"
    r"|[^,;:.!?]{2,60}\bmust (?:never|always|not)\b"
    r"|(?:immer|nie|niemals|ab (?:jetzt|sofort))\b|\w+e?t? (?:immer|nie|niemals) |(?:jede[rs]?"
    r"|alle) [^,;:.!?]{1,60}\b(?:muss|müssen)\b"
    r"|ne \w+[\w' -]{0,20} jamais\b|n['’]\w+[\w' -]{0,20} jamais\b|jamais\b|toujours\b|\w+ toujours\b|désormais\b"
    r"|dorénavant\b"
    r"|(?:nunca|siempre|jamás)\b|\w+ siempre\b|(?:a partir de|desde) ahora\b|(?:sempre|mai|d'ora in poi)\b"
    r"|non \w+ mai\b"
    r"|(?:nunca|sempre|a partir de agora)\b|(?:всегда|никогда|отныне|впредь)\b)"
    r"|(?:绝对不要|務必|务必|必须|一律|从现在|以后[^。]{0,12}(?:都|要|不)|永远不要|始终|总是|都要按|绝不|禁止)"
    r"|(?:必ず|絶対に?|今後は|これからは|常に)[^。]{0,80}(?:ください|ないで|こと|する)|ないでください"
    r"|(?:항상|절대|반드시|앞으로)[^.]{0,80}(?:세요|마세요|주세요|해|마)|지 마세요",
    re.IGNORECASE,
)


def lays_down_clearly(sentence: str) -> bool:
    """Return whether a sentence is a rule by one of the plain forms: "always …", "never …", "every … must …"."""
    return _CLEAR.search(sentence) is not None and is_standing(sentence)


# A sentence is looked at several times: as a rule, as a remark, and as a part of its passage.
@lru_cache(maxsize=1_024)
def is_standing(sentence: str) -> bool:
    """Return whether a sentence is a standing instruction, not a statement, a question or a request for one step."""
    if not _SHORTEST <= len(sentence) <= _LONGEST:
        return False
    if _ASKS.search(sentence) or _SEEKS_HELP.search(sentence):
        return _ASKS_POLITELY.match(sentence) is not None
    sentence = _BULLET.sub("", _COMPOUND.sub("", sentence) if _NUMBERED.match(sentence) else sentence)
    lead, _, rest = sentence.partition(": ")
    if rest and len(lead) <= 40 and _is_binding(rest):
        return True
    return _is_binding(sentence)


def _is_binding(sentence: str) -> bool:
    if not sentence.isascii() and _CJK.search(sentence):
        return not _is_statement(sentence)
    if _DESCRIBES.search(sentence) and not _COMMANDS.match(sentence):
        return False
    return _BINDS.search(sentence) is not None or _BINDS_ELSEWHERE.search(sentence.lower()) is not None


def _is_statement(sentence: str) -> bool:
    """Whether a sentence in Japanese or Chinese, by its opening or ending, binds nothing: small talk or a statement."""
    if is_small_talk(sentence):
        return True
    if _TELLS_OF_ONESELF.search(sentence) and _ASKS_OTHERS.search(sentence) is None:
        return True
    if _STATES.search(sentence):
        return _ORDERS.search(sentence) is None and _SCOPES.search(sentence) is None
    return _OWN_STORY.match(sentence) is not None and _DEMANDS.search(sentence) is None
