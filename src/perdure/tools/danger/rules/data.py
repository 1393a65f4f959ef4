"""Databases: statements that delete, and the commands around them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from perdure.tools.danger.kinds import Danger
from perdure.tools.danger.rules.rule import RiskRule, any_command, any_operand, is_trial, option, unless
from perdure.tools.danger.run import Invocation
from perdure.tools.danger.sql import deleting_statements

_CLIENTS = frozenset(
    [
        "psql",
        "mysql",
        "mariadb",
        "sqlite3",
        "sqlite",
        "duckdb",
        "clickhouse-client",
        "clickhouse",
        "cockroach",
        "sqlcmd",
        "sqlplus",
        "cqlsh",
        "mongo",
        "mongosh",
        "bq",
        "pgcli",
        "mycli",
        "litecli",
        "usql",
        "turso",
        "d1",
        "influx",
        "snowsql",
        "trino",
        "presto",
        "hive",
        "beeline",
        "spark-sql",
        "isql",
        "impala-shell",
    ]
)
_REDIS = frozenset({"flushall", "flushdb", "shutdown", "debug", "swapdb"})


def statement_dangers(run: Invocation) -> Iterator[Danger]:
    """What a database client is told to do, on its command line or through its input."""
    if run.name in ("redis-cli", "valkey-cli", "keydb-cli"):
        words = {w.lower() for w in (*run.operands, *(run.stdin or "").split()[:50])}
        if words & _REDIS:
            yield Danger("database", run.shown)
        return
    if run.name not in _CLIENTS:
        return
    for text in (*run.args, run.stdin or ""):
        text = re.sub(r"^(?:-c|-e|--command=|--execute=|--eval=|--query=)", "", text)
        if next(deleting_statements(text), None):
            yield Danger(
                "database", run.shown if text in run.args else f"{run.name} with {' '.join(text.split())[:100]}"
            )
            return


def _tasks(*names: str) -> re.Pattern[str]:
    return re.compile(rf"^(?:{'|'.join(names)})")


_RAKE = _tasks(
    "db:drop", "db:reset", "db:purge", "db:schema:load", "db:migrate:reset", "db:truncate", "db:setup", "db:wipe"
)
_ARTISAN = _tasks("migrate:fresh", "migrate:reset", "migrate:refresh", "db:wipe")
_DJANGO = frozenset({"flush", "reset_db", "sqlflush", "reset_migrations", "delete_all"})


def _rails(run: Invocation) -> bool:
    return any(_RAKE.match(o) for o in run.operands)


def _manage(run: Invocation) -> bool:
    words = run.operands
    scripts = [i for i, w in enumerate(words) if w.endswith("manage.py")]
    if run.name in ("django-admin", "manage.py"):
        return any(w in _DJANGO for w in words[:1])
    return any(words[i + 1] in _DJANGO for i in scripts if i + 1 < len(words))


def _artisan(run: Invocation) -> bool:
    return "artisan" in run.operands[:1] and any(_ARTISAN.match(o) for o in run.operands)


def _prisma(run: Invocation) -> bool:
    return run.starts("migrate", "reset") or run.has("--force-reset", "--accept-data-loss")


def _pipeline_runs_sql(run: Invocation) -> bool:
    return any(_RAKE.match(o) or o in ("db:drop", "db:migrate:undo:all", "schema:drop") for o in run.operands)


RULES = (
    RiskRule("database", "dropdb dropuser", unless(is_trial), "dropdb production"),
    RiskRule("database", "mysqladmin", any_operand("drop", "shutdown", "flush-logs"), "mysqladmin -f drop shop"),
    RiskRule("database", "rake rails bin/rails", _rails, "rails db:drop"),
    RiskRule("database", "python python3 manage.py django-admin", _manage, "python manage.py flush --no-input"),
    RiskRule("database", "php", _artisan, "php artisan migrate:fresh"),
    RiskRule("database", "prisma", _prisma, "npx prisma migrate reset --force"),
    RiskRule(
        "database",
        "sequelize sequelize-cli typeorm knex drizzle-kit mikro-orm",
        lambda r: (
            _pipeline_runs_sql(r)
            or (r.name == "knex" and r.has("--all"))
            or (r.name == "drizzle-kit" and "drop" in r.operands)
        ),
        "npx sequelize-cli db:drop",
    ),
    RiskRule("database", "alembic", lambda r: r.starts("downgrade", "base"), "alembic downgrade base"),
    RiskRule("database", "flyway liquibase", any_operand("clean", "dropAll", "drop-all", "rollback"), "flyway clean"),
    RiskRule("database", "pg_restore", option("-c", "--clean"), "pg_restore --clean -d shop dump"),
    RiskRule(
        "database",
        "pg_dropcluster pg_resetwal initdb",
        lambda r: r.name != "initdb" and not is_trial(r),
        "pg_dropcluster 15 main",
    ),
    RiskRule("database", "mongorestore", option("--drop"), "mongorestore --drop dump"),
    RiskRule("database", "mix", any_command("ecto.drop", "ecto.reset"), "mix ecto.drop"),
    RiskRule("database", "dotnet", lambda r: r.starts("ef", "database", "drop"), "dotnet ef database drop"),
    RiskRule("database", "supabase", lambda r: r.starts("db", "reset"), "supabase db reset"),
    RiskRule(
        "database",
        "hasura wrangler",
        lambda r: "delete" in r.operands or r.starts("metadata", "clear"),
        "wrangler d1 delete shop",
    ),
    RiskRule(
        "database",
        "etcdctl consul vault kafka-topics kafka-topics.sh rabbitmqctl",
        lambda r: any(
            w in r.args
            for w in (
                "del",
                "delete",
                "destroy",
                "--delete",
                "reset",
                "delete_queue",
                "purge_queue",
                "force_reset",
                "disable",
            )
        ),
        "etcdctl del / --prefix",
    ),
)
