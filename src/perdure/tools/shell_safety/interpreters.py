"""Code passed to interpreters (python -c, node -e, …)."""

from __future__ import annotations

import posixpath
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, pairwise

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.parse import decode_escapes
from perdure.tools.shell_safety.paths import PathZones
from perdure.tools.shell_safety.types import (
    DECODED,
    DOWNLOADED,
    PROGRAM,
    TOO_LONG,
    UNKNOWN,
    Code,
    Danger,
    Unreadable,
    word_set,
)

SHELLS = word_set("sh bash dash zsh ksh mksh ash fish rbash csh tcsh")

_LANGUAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "python": ("python", ("-c",)),
    "perl": ("perl", ("-e", "-E")),
    "ruby": ("ruby", ("-e",)),
    "node": ("node", ("-e", "--eval", "-p", "--print")),
    "nodejs": ("node", ("-e", "--eval", "-p", "--print")),
    "bun": ("node", ("-e", "--eval")),
    "php": ("php", ("-r",)),
    "lua": ("lua", ("-e",)),
    "osascript": ("applescript", ("-e",)),
    "Rscript": ("r", ("-e",)),
    "tclsh": ("tcl", ()),
    "julia": ("julia", ("-e", "-E", "--eval")),
    "elixir": ("elixir", ("-e", "--eval")),
    "groovy": ("groovy", ("-e",)),
    "scala": ("scala", ("-e",)),
    "swift": ("swift", ("-e",)),
    "raku": ("raku", ("-e",)),
    "guile": ("lisp", ("-c",)),
    "sbcl": ("lisp", ("--eval",)),
    "clojure": ("lisp", ("-e",)),
    "bb": ("lisp", ("-e",)),
    "ghc": ("haskell", ("-e",)),
    "crystal": ("crystal", ()),
    "emacs": ("lisp", ("--eval",)),
    "iex": ("elixir", ("-e", "--eval")),
    "mix": ("elixir", ("-e", "--eval")),
    "tsx": ("node", ("-e", "--eval")),
    "ts-node": ("node", ("-e", "--eval")),
    "kotlin": ("kotlin", ("-e",)),
}


def language_of(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the language of an interpreter, and its options that take code."""
    plain = re.sub(r"[\d.]+\Z", "", name)
    return _LANGUAGES.get(name) or _LANGUAGES.get(plain) or (_LANGUAGES["python"] if plain in ("pypy", "py") else None)


def runs_stdin(run: Invocation) -> bool:
    """Whether a shell or interpreter reads its program from stdin."""
    return not run.operands or run.operands[0] in ("-", "/dev/stdin", "/dev/fd/0") or run.has("-s")


def shell_script(run: Invocation) -> tuple[str, tuple[str, ...]] | None:
    """Return the script of `sh -c` and its arguments; None without -c."""
    has_c, at = False, 0
    while at < len(run.args) and run.args[at][:1] in ("-", "+") and run.args[at] != "--":
        a = run.args[at]
        has_c = has_c or (not a.startswith("--") and "c" in a[1:]) or a == "--command"
        at += 2 if a in ("-o", "+o", "-O", "+O", "--rcfile", "--init-file") else 1
    at += at < len(run.args) and run.args[at] == "--"
    if not has_c or at >= len(run.args):
        return None
    return run.args[at], run.args[at + 1 :]


def code_of(run: Invocation) -> Iterator[Code]:
    """Yield the code passed to an interpreter on its command line or stdin."""
    if run.name in ("awk", "gawk", "mawk", "nawk"):
        if run.operands and not run.has("-f"):
            yield Code("awk", run.operands[0] if run.value_of("-v") is None else " ".join(run.operands))
        return
    if run.name == "deno" and run.operands[:1] == ("eval",):
        yield Code("node", " ".join(run.operands[1:]))
        return
    entry = language_of(posixpath.basename(run.name))
    if entry is None:
        return
    language, options = entry
    has_code = False
    for i, a in enumerate(run.args[:-1]):
        is_cluster = any(
            len(o) == 2 and re.fullmatch(rf"-[A-Za-z0-9]*{o[1]}", a) and not a.startswith("--") for o in options
        )
        if a in options or is_cluster:
            has_code = True
            yield Code(language, run.args[i + 1])
    for a in run.args:
        if option := next(
            (o for o in options if len(o) == 2 and a.startswith(o) and len(a) > 2 and not a[1:].isalnum()), None
        ):
            has_code = True
            yield Code(language, a[len(option) :])
    if not has_code and run.stdin and runs_stdin(run) and run.stdin != PROGRAM:
        yield Code(language, run.stdin)


# The start of a string literal, or a whole Perl or Ruby quote.
_STRING_START = re.compile(
    r"""(?:\b[rbfuRBFU]{1,2})?("{3}|'{3}|["'`])"""
    r"""|((?:\bq[qwx]?|%x)(?:\{[^}]{0,500}\}|\([^)]{0,500}\)|/[^/]{0,500}/))"""
)
_UNESCAPED = {quote: re.compile(rf"(?<!\\)(?:\\\\)*{quote}") for quote in "\"'`"}
_MAX_QUOTES = 20_000
_RUNS = re.compile(
    r"\b(?:system|popen\d?|Popen|execSync|execFile(?:Sync)?|spawn(?:Sync|l|lp|v|vp)?|exec[lv][pe]{0,2}|shell_exec|passthru"
    r"|proc_open|getoutput|getstatusoutput|check_output|check_call|os\.execute|io\.popen|qx|IO\.popen|Open3\.\w+"
    r"|create_subprocess_\w+|do shell script|shell-command|call-process|\$`|Kernel\.\w+)\b|\bsubprocess\b|child_process"
    r"|\bexec\s*[(\"']|\bsystem\s*[(\"']|\b(?:sys\.process|ProcessBuilder|getRuntime|System\.cmd)\b|\|\s*\"|%x[({]|\bgetline\b"
)
# Backticks quote a template string in JavaScript, but run a command in these languages.
_BACKTICKS_RUN = frozenset({"", "perl", "ruby", "php"})
_DELETES = re.compile(
    r"\b(?:rmtree|remove_tree|rm_rf|rm_r|rmSync|rmdirSync|removeSync|emptyDirSync|rimraf|delete_tree|deltree"
    r"|fs\.rm|fs\.promises\.rm|promises\.rm|Remove-Item|removedirs|unlink_recursive|delete-directory|deleteDir|deleteRecursively|removeItem|Deno\.remove(?:Sync)?)\b"
    r"|\bfile\s{1,4}delete\s{1,4}-force\b|\b(?:rm|unlink)\s{0,2}(?=\([^)\n]{1,200}recursive\s{0,2}=\s{0,2}(?i:t))"
)
_UNLINKS = re.compile(r"\b(?:unlink|unlinkSync|os\.remove|File\.delete|FileUtils\.rm|remove)\b")
# A call that deletes or moves one file, and one on a path in front of it.
_UNLINK_CALL = re.compile(
    r"(?:\bunlink(?:Sync)?|\bos\.(?:remove|rmdir|rename|replace)|\bFile\.(?:delete|unlink|rename)|\bFileUtils\.(?:rm|mv|remove)\w*"
    r"|\bfs\.(?:promises\.)?(?:remove|unlink|rename|rmdir)\w*|\bshutil\.move|(?<![\w.>])(?:remove|rmdir|rename|delete-file))\b"
)
_UNLINKED_PATH = re.compile(
    r"""['"]([~/][^'"\n]{1,200})['"]\s{0,3}\)[\w.()]{0,40}\.(?:unlink|rmdir|rename|replace|delete)\b"""
)
_HOME_NAME = re.compile(r"\bHOME\b|USERPROFILE|homedir\(|\b(?:Dir|Path)\.home|expanduser")
_MANY = re.compile(r"\b(?:glob|rglob|walk|listdir|scandir|iterdir|readdir|readdirSync|Dir)\b|<\*|\*")
_WRITES = re.compile(
    r"\bopen\s{0,4}\([^)]{0,120}['\"][^'\"]{0,8}[wax+]|write_text|write_bytes|writeFile|appendFile|file_put_contents|File\.write"
    r"|open\s{0,2}\(?\s{0,2}\w{0,20}\W{1,6}['\"]?>|truncate|os\.rename|shutil\.(?:move|copy)|symlink|chmod"
)
_WRITES_FILE = re.compile(
    r"\bopen\s{0,4}\([^\n;]{0,160}['\"](?:[wax]b?\+?|r\+)['\"]|write_text\(|write_bytes\(|writeFile|appendFile|file_put_contents|File\.write"
    r"|\.touch\(|\.symlink|os\.(?:rename|replace|makedirs|mkdir|chmod|truncate)|shutil\.(?:move|copy)|copyFile|renameSync|mkdirSync"
    r"|FileUtils\.(?:cp|mv|mkdir|touch|ln)|>\s{0,3}['\"]?\s{0,2}[.,]?\s{0,2}\$ENV\{"
)
# A literal path in a call that writes to it.
_WRITTEN_PATH = re.compile(
    r"""\bopen\s{0,3}\(\s{0,3}(?:[\w.]{1,40}\(\s{0,3})?['"]([~/][^'"\n]{1,200})['"]\)?\s{0,3},\s{0,3}(?:mode\s?=\s?)?['"][^'"r]{0,3}[wax+]"""
    r"""|(?:writeFile(?:Sync)?|appendFile(?:Sync)?|file_put_contents|File\.write|copyfile|os\.truncate)\s{0,3}\("""
    r"""\s{0,3}['"]([~/][^'"\n]{1,200})['"]"""
    r"""|>{1,2}\s{0,3}['"]?(?:\s{0,3},\s{0,3})?['"]([~/][^'"\n]{1,200})['"]"""
    r"""|['"]\+?>{1,2}\s{0,3}([~/][^'"\n]{1,200})['"]"""
    r"""|Path\(\s{0,3}['"]([~/][^'"\n]{1,200})['"]\s{0,3}\)[\w.()]{0,40}\.write_(?:text|bytes)"""
)
_GLOB_PATH = re.compile(r"""\bglob\w{0,8}\s{0,3}\(\s{0,3}['"]([~/][^'"*\n]{0,200})\*""")
_OPENS_TO_WRITE = re.compile(r"""\bopen\s{0,3}\([^)\n]{0,80},\s{0,3}['"][wax]""")
_HOME_WRITE = re.compile(
    r"\b(?:Path\.home\(\)|Dir\.home|os\.homedir\(\)|homedir\(\))[^\n;]{0,200}"
    r"(?:\.(?:write_text|write_bytes|touch|unlink|rename|symlink_to)\b|['\"][wax]\+?b?['\"])"
    r"|(?:writeFile|appendFile)(?:Sync)?\s{0,3}\([^\n;]{0,80}homedir\(\)"
)
_EVALUATES = re.compile(
    # `json.load` and `re.compile` run nothing.
    r"(?<!json\.)(?<!yaml\.)(?<!tomllib\.)(?<!\bre\.)"
    r"\b(?:exec|eval|Function|marshal\.loads|compile|loadstring|load|instance_eval|iex|IEX|Invoke-Expression)\b"
)
_DECODES = re.compile(
    r"b64decode|a85decode|b32decode|fromhex|unhexlify|fromCharCode|\batob\b|base64|\bdecompress\b|\bunpack\b|\bpack\b|rot_?13"
    r"|\bchr\b|Buffer\.from|decode\s*\((?!\s*(?:\)|['\"](?:utf|ascii|latin)))|EncodedCommand|FromBase64String"
)
_FETCHES = re.compile(
    r"urlopen|urlretrieve|requests\.get|httpx\.get|\bfetch\s*\(|https?\.get|require\(['\"]https?['\"]\)|open-uri|LWP|file_get_contents\s*\(\s*['\"]http"
    r"|\b(?:get|getstore|mirror|read|open|request|include|require|dofile)\b\s{0,3}\(?\s{0,3}['\"](?:https?|ftp)://"
    r"|socket\.http|HTTP::Tiny|curl_exec|Faraday|HTTParty|DownloadString|Invoke-WebRequest|\biwr\b|URI\.open|Net::HTTP|WebClient"
    r"|\birm\b|Invoke-RestMethod|Start-BitsTransfer"
)
_SOCKETS = re.compile(
    r"\bsocket\b|TCPSocket|TCPServer|fsockopen|stream_socket_|\bnet['\"]?\)?\.(?:connect|Socket|createConnection|createServer)|IO::Socket|\bSocket\b|/inet/tcp"
)
_CONNECTS = re.compile(r"(?i)connect|TCPSocket|TCPServer|fsockopen|stream_socket_|IO::Socket|\baccept\b|createServer")
_SHELL_ENDS = re.compile(
    r"dup2|pty\.spawn|/bin/(?:ba|z|da)?sh|\bsh\b\s+-i|cmd\.exe|powershell|child_process|subprocess|\bexec\b"
)
# Calls of libraries that read the screen, the clipboard, the camera, the microphone or the keyboard.
_RECORDS = re.compile(
    r"\b(?:pyautogui\.screenshot|pyscreenshot\.grab|ImageGrab\.grab|pyperclip\.paste|clipboard_get|sounddevice\.rec|pyaudio"
    r"|VideoCapture\s{0,3}\(\s{0,3}\d|pynput\.keyboard|keyboard\.(?:record|on_press)|Get-Clipboard|CopyFromScreen)\b"
)
_FORK = re.compile(r"\bfork\b")
_LOOP_WORD = re.compile(r"\b(?:while|for|loop|until)\b")
_SENDS = re.compile(
    r"requests\.(?:post|put)|urlopen|\.post\s*\(|http\.client|fetch\s*\(|sendall|\.request\s*\(|smtplib"
)
# A request whose body is a file, and the address it goes to.
_POSTS = re.compile(
    r"\b(?:requests|httpx|session|client|axios|Faraday|HTTParty|got|superagent)\.(?:post|put|patch)\b|\bstorbinary\b"
    r"|\burlopen\s{0,3}\([^\n;)]{0,200},\s{0,3}(?:data\s{0,2}=|[^,)=\n]{1,80}[,)])|\bRequest\s{0,3}\([^\n;]{0,200}\bdata\s{0,2}=|\bpost(?:_form)?\s{0,3}\(\s{0,3}URI"
    r"|method['\"]?\s{0,3}(?::|=>?)\s{0,3}['\"]POST|CURLOPT_POST|\.request\s{0,3}\(\s{0,3}['\"]POST|Net::HTTP(?:\.|::)[pP]ost"
    r"|HTTP::Tiny[^\n;]{0,60}->post|LWP[^\n]{0,120}->post|\bHTTP\.post\b|\bhttp\.request\b"
)
# A request that only asks although it has a body.
_ASKING_PATH = re.compile(
    r"graphql|search|query|completions|embeddings|/messages|/generate|httpbin|/echo|/token\b|/validate"
)
_READS_FILE = re.compile(
    r"\bopen\s{0,3}\(|read_text|read_bytes|readFile|createReadStream|File\.(?:read|open)|file_get_contents|\bfiles\s{0,3}="
)
_SOCKET_SENDS = re.compile(
    r"\b(?:sendall|sendto|send|sendfile|retrbinary|storlines)\s{0,3}\(|\bsyswrite\b|fwrite\s{0,3}\(\s{0,3}\$s"
)
# The contents of a file, as against a file that is written.
_READS_LOCALLY = re.compile(
    r"\bopen\s{0,3}\(\s{0,3}[^,)\n]{1,120}(?:,\s{0,3}['\"]rb?['\"])?\s{0,3}\)\s{0,3}\.read|read_text\(|read_bytes\(|readFile(?:Sync)?\(|createReadStream"
    r"|File\.read\b|IO\.read\b|file_get_contents\(\s{0,3}['\"](?!http)|\bslurp\b"
)
_REMOTE_URL = re.compile(r"(?i)(?:https?|ftp)://(?!localhost|127\.|0\.0\.0\.0|\[::1\]|host\.docker\.internal)")
# What PowerShell changes beyond files.
_CMDLETS = re.compile(
    r"(?i)\b(?:(?P<power>(?:Stop|Restart)-Computer)|(?P<security>Set-ExecutionPolicy|(?:Set|Add)-MpPreference|Disable-\w{1,40}"
    r"|Set-NetFirewallProfile|Clear-EventLog|wevtutil)|(?P<disk>Format-Volume|Clear-Disk|Initialize-Disk|Remove-Partition)"
    r"|(?P<users>New-LocalUser|Add-LocalGroupMember|Set-LocalUser|Remove-LocalUser)|(?P<services>Stop-Service|Remove-Service"
    r"|New-Service|Set-Service)|(?P<startup_files>Register-ScheduledTask|New-ScheduledTask|schtasks)|(?P<commitment>Send-MailMessage)"
    r"|(?P<cloud>Invoke-Command\b[^;|]{0,80}-ComputerName|Enter-PSSession|New-PSSession))\b"
)
# What AppleScript does in the user's name.
_APPLE_ACTIONS = re.compile(
    r"(?i)\b(?:(?P<delete_tree>empty (?:the )?trash)|(?P<power>shut down|restart|log out)"
    r"|(?P<privileges>administrator privileges)|(?P<commitment>send\b|outgoing message)"
    r"|(?P<delete_outside>delete)|(?P<recording>keystroke|key code))\b"
)
_ENVIRONMENT = re.compile(r"os\.environ(?!\.get|\[)|process\.env(?!\.)|\bENV\.to_|getenv\(\)")
# All variables printed, or a password from the user's store.
_PRINTS_SECRETS = re.compile(
    r"(?:\b(?:print|pprint|puts|p|log|dumps|var_dump|print_r|echo)\b[\s(]{1,4}|\A\s{0,4})(?:dict\(|json\.dumps\(|JSON\.stringify\()?"
    r"(?:os\.environ|os\.getenv|process\.env|ENV(?:\.to_h|\.inspect)?|\$_ENV|getenv)"
    r"(?:\(?\)?\s{0,2}(?:[),;\n]|\Z)|[.\[(]{1,2}(?:fetch\(|get\()?['\"]?\w{0,40}(?:SECRET|TOKEN|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|ACCESS_KEY))"
    r"|\bkeyring\.get_|\bget_secret_value\b"
)
# A package from a URL or a repository: `Pkg.add(url="https://…")`, `install_github("a/b")`.
_INSTALLS_PACKAGE = re.compile(
    r"\b(?:Pkg\.(?:add|develop|clone)|install\.packages|pip\.main|install_url|install_git)\b[^\n]{0,200}(?:https?://|git@)"
    r"|\binstall_(?:github|gitlab|bitbucket)\b"
)
_SQL = re.compile(r"\b(?:execute\w*|query|raw|\$executeRaw\w*)\s*\(")
_AWK_WRITE = re.compile(r">{1,2}\s{0,3}(?:ENVIRON\[\"HOME\"\]\s{0,3}\"(/[^\"\n]{1,300})\"|\"([^\"\n]{1,300})\")")
# Input that is run by a shell: `print | "sh"`, `system($0)`.
_AWK_RUNS_DATA = re.compile(
    r"\|&?\s{0,3}\"\s{0,3}(?:[\w/]{1,40}/)?(?:ba|z|da|k)?sh\b|\bsystem\s{0,3}\(\s{0,3}(?:\"[^\"\n]{0,200}\"\s{0,3})?[$\w]"
)
_KILLS = re.compile(r"\bkill\w*\s*\(\s*-?1\b|os\.reboot|ExitWindows")
# Requests that change something on another machine, and libraries of services with a call that does.
_REMOTE_CHANGE = re.compile(
    r"""\.(?:delete|put|patch)\s{0,3}\(\s{0,3}f?['"]https?://(?!localhost|127\.|0\.0\.0\.0|\[::1\])"""
    r"""|method['"]?\s{0,3}[:=]\s{0,3}['"](?:DELETE|PUT|PATCH)['"]"""
)
_SERVICE_LIBRARY = re.compile(
    r"\b(?:boto3|google\.cloud|googleapiclient|azure\.\w{2,20}|kubernetes|openstack|digitalocean|hcloud|cloudflare|github|gitlab"
    r"|@aws-sdk|@google-cloud|octokit|pulumi|paramiko|fabric|netmiko|napalm|pysnmp|paho|kafka|pika)\b",
    re.I,
)
_SERVICE_CHANGE = re.compile(
    r"\.(?:delete|terminate|stop|reboot|put|create|update|modify|send|remove|attach|detach|revoke|authorize|deploy|publish|patch"
    r"|exec_command|invoke|execute)_?[A-Za-z_]{0,40}\s{0,3}\(|\b(?:Delete|Terminate|Put|Create|Update|Stop)\w{2,40}Command\b"
)
# Libraries of services that reach people or move money, and calls that do.
_MESSAGE_LIBRARY = re.compile(
    r"\b(?:smtplib|twilio|slack_sdk|slack_bolt|telegram|telebot|discord|sendgrid|nodemailer|stripe|paypal\w{0,20}|mailgun|tweepy|praw"
    r"|ccxt|binance|coinbase)\b",
    re.I,
)
_MESSAGE_CALL = re.compile(
    r"\.(?:create|send\w{0,30}|post\w{0,20}|charge|transfer|chat_postMessage|submit|buy|sell|create_order|withdraw|update_status)"
    r"\s{0,3}\(",
    re.I,
)
_DATA_LOSS = re.compile(
    r"\.(?:flushall|flushdb|flushAll|flushDb|drop_database|dropDatabase|delete_many|deleteMany|drop_all|destroy_all|delete_all"
    r"|drop_collection|dropCollection|deleteAll|destroyAll|removeAll|drop_table|truncate_table|delete_index|delete_by_query|dropSchema)\s{0,3}\("
)


# A query of a data model whose results are all deleted.
_QUERY_DELETED = re.compile(
    r"\b(?:objects|query|all\(\)|where\([^)\n]{0,80}\)|filter\([^)\n]{0,80}\))\.(?:[a-z_]{1,20}\([^)\n]{0,80}\)\.){0,2}"
    r"(?:delete|destroy|remove)\s{0,2}\(|\bRepo\.delete_all\b"
)
_SHELL_ON_SOCKET = re.compile(r"/bin/(?:ba)?sh|dup2|/inet/tcp")
# Maximum distances between a loop head and a fork inside it, and between a fork and a loop after it.
_LOOP_CHARS, _BODY_CHARS, _AFTER_CHARS = 240, 41, 20
_MAX_MATCHES = 60
_MAX_STRINGS = 3_000
# Longer code is not read but asked about: every pattern is searched in all of it.
_MAX_CODE_CHARS = 50_000
_ZONE_KINDS = {"device": "disk", "system": "system-files", "startup": "startup-files"}
_LOCAL_ONLY = re.compile(r"(?:localhost|127\.0\.0\.1|moto\b|localstack)")
_MAX_STARTS = 12
# Longer strings are not treated as paths.
_PATH_CHARS = 300


@dataclass(frozen=True, slots=True)
class CodeReading:
    """The result of scanning code: dangers, shell scripts it runs, paths it deletes, SQL statements it executes."""

    dangers: tuple[Danger, ...]
    scripts: tuple[str, ...] = ()
    deletes: tuple[str, ...] = ()
    statements: tuple[str, ...] = ()
    # Files that awk writes by `print > "file"`.
    writes: tuple[str, ...] = ()


def read_code(text: str, zones: PathZones, language: str = "") -> CodeReading:
    """Scan code by its string literals and names; it is not parsed. Raises Unreadable."""
    if len(text) > _MAX_CODE_CHARS:
        raise Unreadable(TOO_LONG)
    what = " ".join(text[:1_000].split())[:160]
    if language in _BACKTICKS_RUN:
        text = re.sub(r"(?<![\w.])`", "system `", text, count=1)
    strings = list(islice(_strings(text), _MAX_STRINGS + 1))
    if len(strings) > _MAX_STRINGS:
        raise Unreadable(TOO_LONG)
    # getattr(os, 'sys' + 'tem') builds a name from strings.
    names = " ".join((text, *(s for s in strings if re.fullmatch(r"\w{2,20}", s))))
    dangers = tuple(Danger(kind, what) for kind in _kinds(text, names, strings, zones))
    scripts: tuple[str, ...] = ()
    if _RUNS.search(names):
        # A list of arguments is a command too; it may start at any string.
        scripts = (*strings, *(" ".join(strings[i:]) for i in range(min(len(strings) - 1, _MAX_STARTS))))
    statements = tuple(strings) if _SQL.search(names) else ()
    writes: tuple[str, ...] = ()
    actions = {"powershell": _CMDLETS, "applescript": _APPLE_ACTIONS}.get(language)
    if actions is not None and (action := actions.search(text)) is not None:
        dangers += (Danger((action.lastgroup or "").replace("_", "-"), what),)
    if language == "awk":
        matches = islice(_AWK_WRITE.finditer(text), _MAX_MATCHES)
        writes = tuple(f"~{match[1]}" if match[1] else match[2] for match in matches)
        dangers += (Danger("hidden-code", what),) if _AWK_RUNS_DATA.search(text) else ()
    return CodeReading(dangers, scripts, tuple(_deleted_paths(text)), statements, writes)


def _kinds(text: str, names: str, strings: list[str], zones: PathZones) -> Iterator[str]:
    runs = _RUNS.search(names) or _EVALUATES.search(names)
    if DECODED in text or text.strip() == UNKNOWN or (runs and _DECODES.search(names)):
        yield "hidden-code"
    if DOWNLOADED in text or (runs and _FETCHES.search(names)):
        yield "remote-code"
    if _INSTALLS_PACKAGE.search(text):
        yield "package-source"
    if _hands_out_shell(text, names):
        yield "reverse-shell"
    if _forks_in_a_loop(text):
        yield "fork-bomb"
    if _RECORDS.search(text):
        yield "recording"
    if _sends_away(text, strings):
        yield "send-data"
    if _KILLS.search(text):
        yield "kill"
    if (_REMOTE_CHANGE.search(text) and not _LOCAL_ONLY.search(text)) or (
        _SERVICE_LIBRARY.search(text) and _SERVICE_CHANGE.search(text) and not _LOCAL_ONLY.search(text)
    ):
        yield "cloud"
    if _MESSAGE_LIBRARY.search(text) and _MESSAGE_CALL.search(text):
        yield "commitment"
    if _DATA_LOSS.search(text) or _QUERY_DELETED.search(text):
        yield "database"
    if _shows_secret(text, strings, zones):
        yield "credentials"
    if _WRITES.search(text) or _UNLINKS.search(text):
        named_zones = {zones.classify(s).zone for s in strings if s.startswith(("/", "~")) and len(s) < _PATH_CHARS}
        yield from (kind for zone, kind in _ZONE_KINDS.items() if zone in named_zones)
    if zones.workspace is not None:
        yield from _written_kinds(text, zones)
        if any(zones.is_outside(zones.classify(path)) for path in _unlinked_paths(text)):
            yield "delete-outside"
    if _UNLINKS.search(text) and _MANY.search(text):
        yield "delete-tree"


def _sends_away(text: str, strings: list[str]) -> bool:
    """Whether a request has a body, or is made next to reading a file, and goes to another machine."""
    urls = [s for s in strings if _REMOTE_URL.match(s)]
    if _SOCKET_SENDS.search(text) and _READS_LOCALLY.search(text) and not _LOCAL_ONLY.search(text):
        return True
    if not urls:
        # The address may be built at run time.
        return _POSTS.search(text) is not None and _READS_FILE.search(text) is not None and not _LOCAL_ONLY.search(text)
    if _POSTS.search(text) and not all(_ASKING_PATH.search(u[:_PATH_CHARS]) for u in urls):
        return True
    return _READS_LOCALLY.search(text) is not None and (_POSTS.search(text) or _FETCHES.search(text)) is not None


def _written_kinds(text: str, zones: PathZones) -> Iterator[str]:
    is_built = _HOME_NAME.search(text) is not None and _WRITES_FILE.search(text) is not None
    if is_built or _HOME_WRITE.search(text) or _writes_listed(text, zones):
        yield "write-outside"
    for match in islice(_WRITTEN_PATH.finditer(text), _MAX_MATCHES):
        location = zones.resolve_write(next(path for path in match.groups() if path))
        if kind := zones.written_kind(location):
            yield kind


def _writes_listed(text: str, zones: PathZones) -> bool:
    """Whether files are opened for writing that a pattern outside the workspace lists."""
    match = _GLOB_PATH.search(text)
    return match is not None and _OPENS_TO_WRITE.search(text) is not None and zones.is_outside(zones.classify(match[1]))


def _hands_out_shell(text: str, names: str) -> bool:
    """Whether the code connects a shell to a socket."""
    if not _SOCKETS.search(names):
        return False
    is_client = _CONNECTS.search(names) is not None
    if is_client and (_SHELL_ENDS.search(names) or _RUNS.search(names)):
        return True
    piped = any(end in names.partition(start)[2] for start, end in (("TCPSocket", "popen"), ("fsockopen", "exec")))
    return piped or _SHELL_ON_SOCKET.search(names) is not None


def _forks_in_a_loop(text: str) -> bool:
    for fork in islice(_FORK.finditer(text), _MAX_MATCHES):
        if re.search(r"\b(?:while|for)\b", text[fork.end() : fork.end() + _AFTER_CHARS]):
            return True
        before = text[max(0, fork.start() - _LOOP_CHARS) : fork.start()]
        for loop in _LOOP_WORD.finditer(before):
            # The loop head ends with its line; its body starts after a colon, bracket or blank near the fork.
            end = next((i for i in range(loop.end(), len(before)) if before[i] in ";\n"), len(before) - 1)
            if re.search(r"[:;{(\s]", before[max(loop.end(), len(before) - _BODY_CHARS) : end + 1]):
                return True
    return False


def _shows_secret(text: str, strings: list[str], zones: PathZones) -> bool:
    if any(zones.is_credential(s) for s in strings if "/" in s and len(s) < _PATH_CHARS) or _PRINTS_SECRETS.search(
        text
    ):
        return True
    # A path joined from its parts: `Path.home() / ".ssh" / "id_rsa"`, `os.path.join(home, ".aws", "credentials")`.
    if _HOME_NAME.search(text) and any(
        zones.is_credential(f"~/{a}/{b}") for a, b in pairwise(strings[:_MAX_MATCHES]) if a[:1] == "." and len(b) < 60
    ):
        return True
    has_private = bool(_ENVIRONMENT.search(text)) or any(zones.is_private(s) for s in strings if len(s) < _PATH_CHARS)
    return has_private and bool(_SENDS.search(text))


def _deleted_paths(text: str) -> Iterator[str]:
    """Yield the paths passed to calls that delete a tree; UNKNOWN for those that are not literals."""
    for number, match in enumerate(_DELETES.finditer(text)):
        if number == _MAX_MATCHES:
            yield UNKNOWN
            return
        if text[match.end() : match.end() + 1] in (")", ","):
            continue  # a name, not a call
        call = re.split(r"[)\n;]", text[match.end() : match.end() + 300], maxsplit=1)[0]
        paths = [s for s in _strings(call) if s]
        yield from paths or [UNKNOWN]


def _unlinked_paths(text: str) -> Iterator[str]:
    """Yield the absolute paths that single calls delete or move away; `~` for those below the home folder."""
    yield from (match[1] for match in islice(_UNLINKED_PATH.finditer(text), _MAX_MATCHES))
    for match in islice(_UNLINK_CALL.finditer(text), _MAX_MATCHES):
        call = re.split(r"[\n;]", text[match.end() : match.end() + 300], maxsplit=1)[0]
        # Of a move only the source disappears.
        path = next(_strings(call), "")
        if path.startswith(("/", "~")):
            yield path
        elif _HOME_NAME.search(call):
            yield "~/file"


def _literals(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield (start, end, body) of each literal in linear time: closing quotes are located once for the whole text."""
    if sum(map(text.count, "\"'`")) > _MAX_QUOTES:
        raise Unreadable(TOO_LONG)
    closers = {quote: [m.end() - 1 for m in pattern.finditer(text)] for quote, pattern in _UNESCAPED.items()}
    last_triple = {quote: text.rfind(quote * 3) for quote in "\"'"}
    at = 0
    while (match := _STRING_START.search(text, at)) is not None:
        if match[2] is not None:
            at = match.end()
            yield match.start(), at, re.sub(r"^[q%][qwx]?.", "", match[2])[:-1]
            continue
        start, quote = match.start(1), match[1]
        if len(quote) == 3 and start + 3 <= last_triple[quote[0]]:
            at = text.index(quote, start + 3) + 3
            yield match.start(), at, text[start + 3 : at - 3]
            continue
        positions = closers[quote[0]]
        index = bisect_right(positions, start)
        if index == len(positions):
            at = start + 1  # never closed: not a literal
            continue
        at = positions[index] + 1
        yield match.start(), at, text[start + 1 : at - 1]


def _strings(text: str) -> Iterator[str]:
    """Yield the string literals; those concatenated with + or . as one."""
    buffer, end = "", -1
    for start, stop, inner in _literals(text):
        value = decode_escapes(inner)
        between = text[end:start] if end >= 0 else ""
        if end >= 0 and between.strip() in ("", "+", ".") and (between.strip() or buffer):
            buffer += value
        else:
            if buffer:
                yield buffer
            buffer = value
        end = stop
    if buffer:
        yield buffer
