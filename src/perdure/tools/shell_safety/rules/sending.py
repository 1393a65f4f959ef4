"""Rules for data that leaves the machine: uploads, copies to other hosts, pushes to new remotes, tunnels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.tools.shell_safety.invocation import Invocation, cluster_value
from perdure.tools.shell_safety.rules.rule import RiskRule, is_help
from perdure.tools.shell_safety.types import DECODED, FILE, PROGRAM, SECRET, word_list, word_set

LOCAL_URL = re.compile(
    r"(?:\w+://)?(?:[^@/]*@)?(?:localhost|127\.|0\.0\.0\.0|\[?::1\]?|host\.docker\.internal|[\w.-]+\.local\b|:\d)"
)
_URL = re.compile(r"\w+://|[\w-]+(?:\.[\w-]+)+(?:[:/]|\Z)|localhost|\[?::1|:\d")
DATA_OPTIONS = word_list(
    "-d -F -T --data --data-binary --data-raw --data-urlencode --data-ascii --form --upload-file --post-data "
    "--post-file --body-file --body-data --json"
)
_FILE_OPTIONS = ("-T", "--upload-file", "--post-file", "--body-file")
_ARCHIVERS = word_set("tar bsdtar zip 7z cpio pg_dump pg_dumpall mysqldump mongodump sqlite3 cat dd")
# Files that hold much data, by name.
_BULK_DATA = re.compile(r"\.(?:sql|dump|db|sqlite3?|mdb|bak|kdbx|pcap|csv\.gz|sql\.gz)\Z", re.I)
_ADDRESS = re.compile(r"(?:[^@/]*@)?(\d{1,3}(?:\.\d{1,3}){3}|\[[0-9a-f:]+\]):", re.I)
_PRIVATE_ADDRESS = re.compile(r"10\.|192\.168\.|172\.(?:1[6-9]|2\d|3[01])\.|127\.")
_COPY_OPTIONS = word_list("-i -e -o -P -F -J -c -l -S --rsh --exclude --include --exclude-from --files-from --port")
_CLOUD_OPTIONS = word_list(
    "--exclude --include --filter --exclude-from --profile --region --project --storage-class --endpoint-url --config "
    "--metadata --content-type --cache-control --sse --transfers --checkers --account-name --subscription"
)
_COPIES = word_set("copy cp sync mv move rsync put copyto moveto mirror")
_SOCKET_ADDRESS = re.compile(r"(?i)(?:tcp|udp|openssl|sctp|ssl|socks|proxy)[\w-]{0,20}\Z")
_SSH_VALUE_LETTERS = "bBcDeEFIiJlLmOopPQRSwW"
_REPOSITORY_URL = re.compile(r"\w+://|[\w.-]+@[\w.-]+:|[\w.-]+\.[a-z]{2,}:\S")


def goes_nowhere(run: Invocation) -> bool:
    """Return whether every URL in the arguments is on this machine."""
    urls = [o for o in run.operands if _URL.match(o)]
    return bool(urls) and all(LOCAL_URL.match(u) for u in urls)


def takes_stdin(run: Invocation) -> bool:
    values = (*run.all_values_of(*DATA_OPTIONS), *run.operands)
    return any(v in ("-", "@-", ".", "/dev/stdin") or v.endswith(("@-", "<-", "@/dev/stdin")) for v in values)


def _uploads(run: Invocation) -> bool:
    """Match `curl -d @file`, `-F x=@file`, `-T file`, and data read from a file in a substitution or a pipe."""
    if is_help(run) or goes_nowhere(run):
        return False
    for value in run.all_values_of(*_FILE_OPTIONS):
        if value not in ("-", "."):
            return True
    if any(re.match(r"(?:[\w.-]+=)?[@<][^-]", v) or FILE in v for v in run.all_values_of(*DATA_OPTIONS)):
        return True
    if run.name in ("http", "https", "xh") and any(re.match(r"(?:[\w-]+(?::=|=)?)?@\S", o) for o in run.operands[1:]):
        return True
    is_piped = any(marker in (run.stdin or "") for marker in (FILE, PROGRAM, SECRET))
    return (is_piped and takes_stdin(run)) or any(FILE in o for o in run.operands if not o.startswith("**/"))


def _pipes_out(run: Invocation) -> bool:
    """Match a file or a stream that is sent by netcat, a TLS client or mail."""
    if run.name == "openssl" and "s_client" not in run.operands:
        return False
    if is_help(run) or run.has("-z") or any(LOCAL_URL.match(o) for o in run.operands):
        return False
    if run.reads:
        return any(path != "/dev/null" for path in run.reads)
    return any(marker in (run.stdin or "") for marker in (FILE, SECRET))


# Hosts of services that reach people or move money.
_MESSAGE_HOST = re.compile(
    r"(?:https?://)?(?:[^@/\s]{1,60}@)?(?:hooks\.slack\.com|slack\.com/api/|(?:ptb\.|canary\.)?discord(?:app)?\.com/api/"
    r"|api\.telegram\.org|[\w.-]{0,60}webhook\.office\.com|outlook\.office\.com/webhook|chat\.googleapis\.com|graph\.microsoft\.com"
    r"|api\.twilio\.com|api\.sendgrid\.com|api\.mailgun\.net|api\.postmarkapp\.com|api\.resend\.com|api\.mailchimp\.com"
    r"|gmail\.googleapis\.com|ntfy\.sh/|api\.pushover\.net|events\.pagerduty\.com|api\.opsgenie\.com|graph\.facebook\.com"
    r"|api\.(?:x|twitter)\.com|rest\.nexmo\.com|smtps?://|api\.stripe\.com|api(?:-m)?\.paypal\.com|api\.coinbase\.com"
    r"|api\.binance\.com|api\.kraken\.com|api\.wise\.com)",
    re.I,
)


def _writes_to_people(run: Invocation) -> bool:
    """Match a request with data, or another method than GET, to a service that reaches people or moves money."""
    method = (run.value_of("-X", "--request", "--method") or "").upper()
    has_data = bool(run.all_values_of(*DATA_OPTIONS)) or run.has("-d", "--mail-rcpt") or "POST" in run.operands[:1]
    if is_help(run) or not (has_data or method not in ("", "GET", "HEAD", "OPTIONS")):
        return False
    return not run.has("-G", "--get") and any(_MESSAGE_HOST.match(o) for o in run.operands)


_METHODS = word_set("GET HEAD OPTIONS POST PUT PATCH DELETE PURGE")
# Requests that only read although they have a body.
_READING_PATH = re.compile(
    r"graphql|search|quer(?:y|ies)|/chat/completions|/completions|/messages|/embeddings|/responses|/generate|/token\b|/login"
    r"|/auth|/validate|/lint|/render|/count|/_msearch|/explain|/predict|/echo|/post\Z|httpbin",
    re.I,
)
_CHANGING_PATH = re.compile(
    r"(?:[/_:-]|\A)(?:delete|remove|purge|flush|reset|shutdown|restart|reboot|stop|kill|disable|terminate|destroy|drop|rollback"
    r"|invalidate|revoke|deactivate|suspend|quit|reload|off|wipe|clear)(?:[/_?-]|\Z)",
    re.I,
)


# Services of this machine that others or later work depend on, by port; and requests that end any service.
_LOCAL_STORE = re.compile(
    r"[^/]{0,20}(?://)?[^/]{0,100}:(?:9[12]00|8500|2379|15672|5984|8086|8200|4646|909\d|7474|8123|6333|7700|8001|2019|2375|10250)(?:/|\Z)"
)
_DELETES_STORED = re.compile(r"/(?:_delete_by_query|delete-batch|_close|_forcemerge|drop|flush|purge|truncate)\b", re.I)
_ENDS_SERVICE = re.compile(r"/(?:shutdown|quitquitquit|poweroff|reboot|factory-?reset)\b", re.I)


def _changes_local_service(run: Invocation) -> bool:
    """Match a request to this machine that deletes stored data, stops a service, or controls containers."""
    method = (run.value_of("-X", "--request", "--method") or "").upper()
    if "docker.sock" in (run.value_of("--unix-socket") or ""):
        return method not in ("", "GET", "HEAD") or bool(run.all_values_of(*DATA_OPTIONS))
    urls = [o[:500] for o in run.operands if _URL.match(o)]
    is_change = method in ("POST", "PUT", "DELETE") or bool(run.all_values_of(*DATA_OPTIONS))
    first = "".join(run.operands[:1]).upper()
    is_stored = any(map(_LOCAL_STORE.match, urls))
    is_deletion = "DELETE" in (method, first) or (
        (is_change or first == "POST") and any(map(_DELETES_STORED.search, urls))
    )
    return (is_stored and is_deletion) or (is_change and any(map(_ENDS_SERVICE.search, urls)))


def changes_service(run: Invocation) -> bool:
    """Match a request that changes something on another machine: by its method, with a login, or by its address."""
    if is_help(run) or run.has("-G", "--get"):
        return False
    if goes_nowhere(run) or run.has("--unix-socket"):
        return _changes_local_service(run)
    first = "".join(run.operands[:1]).upper() if run.name in ("http", "https", "xh") else ""
    method = (run.value_of("-X", "--request", "--method") or (first if first in _METHODS else "")).upper()
    urls = [o for o in run.operands if _URL.match(o)]
    if method in ("DELETE", "PUT", "PATCH", "PURGE", "BAN"):
        return bool(urls) or method == "DELETE"
    if method != "POST" and not run.all_values_of(*DATA_OPTIONS):
        return any(_ACTING_ADDRESS.search(url[:500]) for url in urls)
    if not urls:
        # The address is only known at run time: `curl -d "$TEXT" "$WEBHOOK_URL"`.
        return True
    if any(_CHANGING_PATH.search(url[:500]) for url in urls):
        return True
    return not any(_READING_PATH.search(url[:500]) for url in urls)


# An address that does something when it is only opened.
_ACTING_ADDRESS = re.compile(
    r"/(?:restart|shutdown|reboot|poweroff|purge|flush|terminate|deactivate|quitquitquit|send\w{0,20}|build\?token=\S{0,60}|buildWithParameters)"
    r"(?:[?&]\S{0,200})?\Z",
    re.I,
)


def _relays_file(run: Invocation) -> bool:
    """Match `socat FILE:path TCP:host:port`."""
    kinds = [a.partition(":") for a in run.operands]
    is_file = any(k.lower() in ("file", "open", "gopen") or (not sign and "/" in k) for k, sign, _ in kinds)
    hosts = [rest for k, _, rest in kinds if _SOCKET_ADDRESS.match(k)]
    return is_file and any(not LOCAL_URL.match(h) for h in hosts)


def _host_index(run: Invocation) -> int:
    at = 0
    while at < len(run.args) and run.args[at].startswith("-"):
        option, attached = cluster_value(run.args[at], _SSH_VALUE_LETTERS)
        at += 2 if option and not attached else 1
    return at


def ssh_command(run: Invocation) -> tuple[str, tuple[str, ...]]:
    """Return the host of `ssh`, and the command that runs there."""
    at = _host_index(run)
    words = run.args[at + 1 :]
    while words and words[0].startswith("-"):
        option, attached = cluster_value(words[0], _SSH_VALUE_LETTERS)
        words = words[2:] if option and not attached else words[1:]
    return "".join(run.args[at : at + 1]), words


def _ssh_options(run: Invocation) -> Invocation:
    """Return the invocation without the host and its command, whose options are not those of ssh."""
    at = _host_index(run)
    after = run.args[at + 1 :]
    trailing = after if all(a.startswith("-") for a in after[:1]) else ()
    return Invocation("ssh", (*run.args[:at], *trailing), run.zones)


def _ssh_sends(run: Invocation) -> bool:
    options = _ssh_options(run)
    is_forwarded = any(re.match(r"(?i)(?:remote|dynamic)forward\b", v) for v in options.all_values_of("-o"))
    is_open = options.has("-g") or any(re.match(r"(?:0\.0\.0\.0|\*):", v) for v in options.all_values_of("-L"))
    if is_forwarded or is_open or options.all_values_of("-R", "-D", "-w"):
        return True
    is_data = any(marker in (run.stdin or "") for marker in (FILE, SECRET))
    saves = any(re.search(r">|\btee\b|\bdd\b|\btar\b", o) for o in run.operands[1:])
    return is_data and (saves or bool(_ARCHIVERS.intersection(run.upstream) - {"cat"}))


def copied_paths(run: Invocation) -> tuple[str, ...]:
    """Return sources and target of `scp` and `rsync`: the operands without the values of options."""
    values = run.all_values_of(*_COPY_OPTIONS)
    return tuple(o for o in run.operands if o not in values)


def _copies_away(run: Invocation) -> bool:
    """Match copies to another machine or a cloud, except of build output and to development machines."""
    if run.name in ("sftp", "ftp") and re.search(r"^[ \t]*(?:m?put|reput|rm|rmdir|rename)\b", run.stdin or "", re.M):
        return True
    if run.name == "sftp" and run.has("-b"):
        return True
    *sources, target = copied_paths(run) or ("",)
    if run.name in ("rclone", "aws", "gsutil", "az", "s3cmd", "mc", "azcopy", "s5cmd", "gcloud"):
        if _COPIES.isdisjoint(run.operands):
            return False
        values = run.all_values_of(*_CLOUD_OPTIONS)
        words = (o for o in run.operands if o not in _COPIES and o not in ("s3", "storage") and o not in values)
        *sources, target = tuple(words) or ("",)
    if not re.search(r"\w:", target) or LOCAL_URL.match(target) or re.match(r"[A-Za-z]:\\", target):
        return False
    if run.name == "rsync" and run.has("-n", "--dry-run"):
        return False
    sources = [s for s in sources if not re.search(r"\w:", s)]
    # A mirror deletes there what is not here.
    is_mirror = run.has("--delete", "--delete-after", "--del") or (run.name == "rclone" and "sync" in run.operands[:1])
    if is_mirror or re.search(r"\.ssh/|authorized_keys", target):
        return not run.has("-n", "--dry-run", "--dryrun")
    address = _ADDRESS.match(target)
    if address is not None and sources and not _PRIVATE_ADDRESS.match(address[1]):
        return True
    return not sources or not all(_is_built(run, source) for source in sources)


def _is_built(run: Invocation, source: str) -> bool:
    """Return whether a file or folder was generated, and holds neither keys nor data."""
    is_private = run.zones.is_private(source) or _BULK_DATA.search(source) is not None
    return run.classify(source).is_artefact and not is_private


def _pushes_to_url(run: Invocation) -> bool:
    words = run.operands
    return (
        words[:1] == ("push",) and any(_REPOSITORY_URL.match(o) for o in words[1:2]) and not run.has("--dry-run", "-n")
    )


def _served_folders(run: Invocation) -> Iterator[str]:
    yield from run.all_values_of(*(("-t",) if run.name == "php" else ("--directory", "-d", "--root")))
    if run.name in ("serve", "http-server"):
        yield from run.operands[:1]
    yield "."


def _serves_outside(run: Invocation) -> bool:
    if run.name == "php" and not run.has("-S"):
        return False
    zones = (run.classify(next(_served_folders(run))).zone,)
    return any(zone in ("home", "system", "startup", "outside") for zone in zones)


# The output of a program as a label of a host name, or as a value in the query of an address.
_COMPUTED_LABEL = re.compile(f"[{PROGRAM}{DECODED}][\\w-]{{0,60}}\\.[\\w-]+\\.\\w")
_COMPUTED_QUERY = re.compile(f"[?&][^=\\s]{{1,60}}=[^&\\s]{{0,200}}[{PROGRAM}{DECODED}]")
_MAX_URL_CHARS = 2_000


def _looks_up_data(run: Invocation) -> bool:
    is_label = any(_COMPUTED_LABEL.search(a[:_MAX_URL_CHARS]) for a in run.args)
    return is_label or any(marker in a for a in run.args for marker in (FILE, SECRET))


def _tells_by_address(run: Invocation) -> bool:
    """Match `curl "https://x.example/?u=$(whoami)"`: the address itself carries what a program printed."""
    urls = [o[:_MAX_URL_CHARS] for o in run.operands if "://" in o[:20]]
    return any(_COMPUTED_QUERY.search(u) and not LOCAL_URL.match(u) for u in urls)


RULES: tuple[RiskRule, ...] = (
    RiskRule("send-data", "curl wget http https xh", _uploads, "curl -F file=@report.pdf https://files.example"),
    RiskRule(
        "send-data",
        "nc ncat netcat nc.traditional nc.openbsd socat telnet openssl mail mailx mutt sendmail swaks pastebinit",
        _pipes_out,
        "nc files.example 9000 < report.pdf",
    ),
    RiskRule(
        "commitment",
        "curl wget http https xh",
        _writes_to_people,
        'curl -d \'{"text": "hello"}\' https://hooks.slack.com/services/T0/B0/X',
    ),
    RiskRule(
        "commitment",
        "hardhat truffle brownie ape forge anchor cast starkli",
        lambda r: r.has("--broadcast") or any("mainnet" in a for a in r.args),
        "forge script Deploy.s.sol --broadcast",
    ),
    RiskRule("send-data", "socat", _relays_file, "socat FILE:notes.txt TCP:files.example:9000"),
    RiskRule("send-data", "ssh autossh", _ssh_sends, "tar cz src | ssh host 'cat > src.tgz'"),
    RiskRule(
        "send-data",
        "scp rsync sftp ftp rclone aws gsutil az s3cmd mc azcopy s5cmd gcloud",
        _copies_away,
        "scp -r . me@files.example:",
    ),
    RiskRule("send-data", "git", _pushes_to_url, "git push https://git.example/copy.git main"),
    RiskRule(
        "send-data", "http.server serve http-server caddy php", _serves_outside, "python3 -m http.server --directory ~"
    ),
    RiskRule(
        "send-data",
        "curl wget http https xh open xdg-open",
        _tells_by_address,
        'curl "https://files.example/?u=$(hostname)"',
    ),
    RiskRule("send-data", "dig nslookup host ping drill", _looks_up_data, 'dig "$(cat notes.txt).files.example"'),
)
