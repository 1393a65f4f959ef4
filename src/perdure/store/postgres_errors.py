"""What PostgreSQL's errors mean to a person, as tables. No message ever holds a password."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from perdure.core.errors import CorruptStore, StoreError, StoreUnavailable

# The start of an SQLSTATE → (what to raise, what to say). The first that fits wins.
_MEANINGS: tuple[tuple[str, type[StoreError], str], ...] = (
    ("53100", StoreUnavailable, "{where}: the server's disk is full; nothing stored was changed. Free some space"),
    ("53300", StoreUnavailable, "{where} has no connection left to give; close others or raise max_connections"),
    ("53", StoreUnavailable, "{where} is out of resources ({detail}); nothing was changed. Retry"),
    ("25006", StoreUnavailable, "{where} is read-only (a standby?); name the server that takes writes"),
    ("42501", StoreUnavailable, "{where}: no permission ({detail}); grant USAGE and CREATE on the schema to this user"),
    ("3F000", StoreUnavailable, "{where}: the schema in search_path does not exist; create it, or leave it out"),
    ("55P03", StoreUnavailable, "{where}: another process kept it busy for too long; nothing was changed. Retry"),
    ("57014", StoreUnavailable, "{where}: the server stopped a statement that took too long; nothing was changed"),
    ("57P", StoreUnavailable, "{where}: the server is shutting down or starting; nothing was changed. Retry"),
    ("08", StoreUnavailable, "{where}: the connection was lost; nothing was changed. Retry"),
    ("XX", CorruptStore, "{where}: the server reports damaged data ({detail}); restore a backup"),
    ("54", StoreError, "{where}: a message is too large to store ({detail})"),
)
# What is said when a connection cannot be made → what it means. Such errors carry no SQLSTATE.
_REFUSALS: tuple[tuple[str, str], ...] = (
    (r"password authentication failed", "{where} refused the user name or the password"),
    (r"no password supplied|fe_sendauth", "{where} asks for a password; give one in the URL or in PGPASSWORD"),
    (r"database \".*\" does not exist", "{where} does not exist; create it first (createdb)"),
    (r"role \".*\" does not exist", "{where} knows no such user; check the user name in the URL"),
    (r"no pg_hba\.conf entry|not permitted to log in", "{where} does not let this user in from here (see pg_hba.conf)"),
    (r"too many clients|remaining connection slots|too many connections", "{where} has no connection left to give"),
    (r"failed to resolve host|could not translate host", "{where}: no such host; check the URL"),
    (r"Connection refused|No such file or directory", "{where}: no server answers there; is it running?"),
    (r"timeout|timed out", "{where} did not answer in time; check the address and the firewall"),
    (r"starting up|shutting down|recovery mode", "{where} is starting or stopping just now; retry in a moment"),
    (r"SSL|certificate|GSS", "{where}: no secure connection could be agreed on; check sslmode in the URL"),
)

_CLASHES = ("40001", "40P01")
_RACES = ("23503", "23505")


def is_clash(error: psycopg.Error) -> bool:
    """Two transactions stood in each other's way and the server undid one of them: do it again."""
    return error.sqlstate in _CLASHES


def is_race(error: psycopg.Error) -> bool:
    """Another process made or deleted the very row meanwhile: looked at again, it is there or gone."""
    return error.sqlstate in _RACES


@contextmanager
def translated(where: str) -> Iterator[None]:
    """The driver's errors become ours on their way out."""
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or ("08" if isinstance(error, psycopg.OperationalError) else "")
        for start, kind, text in _MEANINGS:
            if state.startswith(start):
                raise kind(text.format(where=where, detail=_first_line(error))) from error
        raise StoreError(f"{where}: {_first_line(error)}") from error


def refusal(where: str, error: psycopg.Error) -> StoreUnavailable:
    """Why a connection could not be made. The driver's own words may repeat what the URL held, so they stay out."""
    said = str(error)
    for pattern, text in _REFUSALS:
        if re.search(pattern, said, re.IGNORECASE):
            return StoreUnavailable(text.format(where=where))
    return StoreUnavailable(f"{where} cannot be reached; check the URL and that the server takes connections from here")


def _first_line(error: psycopg.Error) -> str:
    return (error.diag.message_primary or str(error)).strip().split("\n")[0]
