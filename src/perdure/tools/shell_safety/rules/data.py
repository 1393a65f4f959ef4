"""Rules for databases, and detection of destructive statements."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.tools.shell_safety.invocation import Invocation
from perdure.tools.shell_safety.rules.rule import RiskRule
from perdure.tools.shell_safety.types import Danger, has_taint, word_set

_LINE_COMMENT = re.compile(r"--[^\n]*|^[ \t]*#[^\n]*", re.M)
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|`[^`]*`")
_QUOTED_OR_END = re.compile(rf"{_QUOTED.pattern}|;")
_DROPS = re.compile(
    r"\s*(?:drop\s+(?!procedure\s+if|function\s+if|trigger\s+if)(?:table|database|schema|keyspace|view|materialized|index|column"
    r"|user|role|owned|tablespace|type|sequence|extension|collection|policy|server|function|procedure|trigger|bucket"
    r"|measurement|series|shard|retention|continuous|warehouse|stage|stream|task|pipe|dictionary|catalog|graph|space"
    r"|aggregate|dataset|partition)\b"
    r"|truncate\b|alter\s+table\b.*\bdrop\b|alter\s+table\s+\S+\s+(?:on\s+cluster\s+\S+\s+)?delete\s+where\b"
    r"|delete\s+from\b|update\b|vacuum\s+full\b.*x^|flush(?:all|db)\b|reset\s+master\b"
    r"|set\s+global\b|select\s+pg_(?:terminate|cancel)_backend\b|revoke\b|shutdown\b|alter\s+(?:role|user|system)\b|grant\b.*(?:\*\.\*|\bto\s+public\b)|create\s+(?:role|user)\b.*\bsuperuser\b)",
    re.I | re.S,
)
_PREAMBLE = re.compile(r"^(?:begin|start\s+transaction|with\s+\w+\s+as\s*\([^)]*\))\s+", re.I)
_NO_FILTER = re.compile(r"\bwhere\b\s*(?:\(?\s*(?:1\s*=\s*1|true|1|''\s*=\s*'')\s*\)?)\s*\Z", re.I)
_DOCUMENTS = re.compile(
    r"\.dropDatabase\s*\(|\.drop\s*\(|\.(?:deleteMany|remove)\s*\(\s*(?:\{\s*\})?\s*\)|\.dropCollection|dropIndexes\s*\(|shutdownServer|\brs\.(?:stepDown|reconfig|remove)\s*\("
    r"|\bdetach\s+delete\b",
    re.I,
)


def destructive_statements(text: str) -> Iterator[str]:
    """Yield the statements that drop, truncate, or delete and update without a filter."""
    plain = " ".join(_LINE_COMMENT.sub(" ", _without_block_comments(text)).split())
    if match := _DOCUMENTS.search(plain):
        yield match.group()
    for statement in _statements(plain):
        if not _DROPS.match(statement):
            continue
        first = statement.split()[0].lower()
        if first in ("delete", "update") and not _is_unfiltered(statement, first):
            continue
        yield statement[:120]


def _is_unfiltered(statement: str, first: str) -> bool:
    if first == "update" and not re.search(r"\bset\b", statement, re.I):
        return False
    bare = _QUOTED.sub("''", statement).strip()
    return not re.search(r"\bwhere\b", bare, re.I) or bool(_NO_FILTER.search(bare))


def _without_block_comments(text: str) -> str:
    """Remove block comments with `find`: a pattern is quadratic in unclosed `/*`."""
    parts, at = [], 0
    while (start := text.find("/*", at)) >= 0 and (end := text.find("*/", start + 2)) >= 0:
        parts.append(text[at:start])
        at = end + 2
    return " ".join([*parts, text[at:]])


def _statements(text: str) -> Iterator[str]:
    """Split at `;` outside quotes, and remove a BEGIN or WITH preamble."""
    cuts = [m.start() for m in _QUOTED_OR_END.finditer(text) if m.group() == ";"]
    for start, end in zip([0, *(c + 1 for c in cuts)], [*cuts, len(text)], strict=True):
        if statement := text[start:end].strip():
            yield _PREAMBLE.sub("", statement)


_CLIENTS = word_set(
    "psql mysql mariadb sqlite3 sqlite duckdb clickhouse-client clickhouse cockroach sqlcmd sqlplus cqlsh mongo "
    "mongosh bq pgcli mycli litecli usql turso d1 influx snowsql trino presto hive beeline spark-sql isql "
    "impala-shell clickhouse-local snow dolt surreal cypher-shell ysqlsh ycqlsh mclient vsql bteq tsql sqlite-utils "
    "cbq arangosh osql fbsql ksql athenacli"
)
# Programs whose arguments are messages and patterns.
_QUOTES = word_set("git gh glab hg jj echo printf grep egrep fgrep rg ag ack logger say sed awk jq yq export test [ [[")
_MAX_ARGUMENT_CHARS, _MAX_ARGUMENTS = 2_000, 50
_DESTRUCTIVE_FILE = re.compile(r"(?:drop|wipe|purge|truncate|delete|destroy|nuke)[\w-]*\.sql\Z", re.I)
_REDIS = frozenset({"flushall", "flushdb", "shutdown", "debug", "swapdb"})


def statement_dangers(run: Invocation) -> Iterator[Danger]:
    """Yield a danger if a database client runs destructive statements, from its arguments or stdin."""
    if run.name in ("redis-cli", "valkey-cli", "keydb-cli"):
        words = {w.lower() for w in (*run.operands, *(run.stdin or "").split()[:50])}
        if words & _REDIS or ("del" in words and any("**/" in o or has_taint(o) for o in run.operands)):
            yield Danger("database", run.summary)
        return
    if run.name not in _CLIENTS:
        statements = (
            a[:_MAX_ARGUMENT_CHARS] for a in run.args[:_MAX_ARGUMENTS] if run.name not in _QUOTES and " " in a
        )
        if any(_DROPS.match(s) and next(destructive_statements(s), None) for s in statements):
            yield Danger("database", run.summary)
        return
    if any(_DESTRUCTIVE_FILE.search(path) for path in (*run.reads, *run.all_values_of("-f", "--file"))):
        yield Danger("database", run.summary)
        return
    for text in (*run.args, run.stdin or ""):
        text = re.sub(r"^(?:-[ceqQ]|-execute=|--(?:command|execute|eval|query|sql|statement)=)", "", text)
        if next(destructive_statements(text), None):
            yield Danger(
                "database", run.summary if text in run.args else f"{run.name} with {' '.join(text.split())[:100]}"
            )
            return


def _tasks(*names: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join(names)})")


_RAKE = _tasks(
    "db:drop", "db:reset", "db:purge", "db:schema:load", "db:migrate:reset", "db:truncate", "db:setup", "db:wipe"
)
_ARTISAN = _tasks("migrate:fresh", "migrate:reset", "migrate:refresh", "db:wipe")
_DJANGO = frozenset({"flush", "reset_db", "sqlflush", "reset_migrations", "delete_all"})


# Calls of an application's own library that delete data, in code that a framework runs.
_DELETING_CALL = re.compile(
    r"(?:\.|::|->)(?:destroy|destroy_all|delete|delete_all|deleteMany|delete_many|truncate|drop|dropDatabase|drop_all|drop_table|flushall"
    r"|flushdb|forceDelete|destroy!|delete_by|destroy_by)\b",
    re.I,
)


def deletes_data(code: str) -> bool:
    """Whether code calls what deletes the rows of a model or a whole database."""
    return _DELETING_CALL.search(code[:20_000]) is not None


def _rails_deletes(run: Invocation) -> bool:
    if any(_RAKE.match(o) for o in run.operands):
        return True
    return run.operands[:1] in (("runner",), ("r",)) and any(deletes_data(o) for o in run.operands[1:])


def _runs_app_code(run: Invocation) -> bool:
    """Match code for the application that deletes data: `manage.py shell -c`, `artisan tinker --execute`."""
    is_shell = any(o in ("shell", "shell_plus", "tinker", "console", "run", "eval") for o in run.operands[:3])
    return is_shell and any(deletes_data(text) for text in (*run.args, run.stdin or ""))


def _manage_deletes(run: Invocation) -> bool:
    words = run.operands
    scripts = [i for i, w in enumerate(words) if w.endswith("manage.py")]
    if run.name in ("django-admin", "manage.py"):
        return any(w in _DJANGO for w in words[:1])
    return any(words[i + 1] in _DJANGO for i in scripts if i + 1 < len(words))


def _artisan_deletes(run: Invocation) -> bool:
    return "artisan" in run.operands[:1] and any(_ARTISAN.match(o) for o in run.operands)


_HBASE_DROPS = re.compile(r"(?m)(?:^|[;|'\"])\s{0,4}(?:drop|disable|truncate|deleteall|delete)\w{0,20}\s")


RULES = (
    RiskRule("database", "rake rails gitlab-rails", _rails_deletes, "rails db:drop"),
    RiskRule(
        "database",
        "python python3 manage.py php artisan mix flask django-admin rails wp drush",
        _runs_app_code,
        "python manage.py shell -c 'User.objects.all().delete()'",
    ),
    RiskRule("database", "python python3 manage.py django-admin", _manage_deletes, "python manage.py flush --no-input"),
    RiskRule("database", "php", _artisan_deletes, "php artisan migrate:fresh"),
    RiskRule(
        "database", "hbase", lambda r: _HBASE_DROPS.search(r.stdin or "") is not None, "hbase shell <<< \"drop 't'\""
    ),
)
