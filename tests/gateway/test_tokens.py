"""AccessTokens: shown once, kept as a hash, ended for every process on the database."""

from __future__ import annotations

import json

import pytest

from perdure.core.errors import ConfigError, NotFound, StoreError
from perdure.core.visibility import OWNER, User, user_from_key
from perdure.gateway.auth.principal import SCOPES, Principal
from perdure.gateway.auth.tokens import (
    LOCAL_OWNER,
    MAX_AGE_S,
    AccessTokens,
    ProcessTokenAuthenticator,
    TokenAuthenticator,
    digest_of,
)
from perdure.redaction import redact
from perdure.store import SessionStore
from support.postgres import server_ends_with_the_run as server_ends_with_the_run
from support.store import Backend, FakeClock
from support.store import backend as backend
from support.store import clock as clock
from support.store import store as store

DAY_MS = 86_400_000


@pytest.fixture
def tokens(store: SessionStore, clock: FakeClock) -> AccessTokens:
    return AccessTokens(store, clock)


def authenticator(tokens: AccessTokens, clock: FakeClock, *, is_open: bool = True) -> TokenAuthenticator:
    return TokenAuthenticator(tokens, clock, is_open=is_open)


def test_a_token_stands_for_its_user_and_scopes(tokens: AccessTokens, clock: FakeClock) -> None:
    made = tokens.add(User("alice"), ["chat", "read"])
    assert authenticator(tokens, clock).authenticate(made.text) == Principal(User("alice"), frozenset({"chat", "read"}))


def test_no_two_tokens_are_alike_and_each_holds_256_bits(tokens: AccessTokens) -> None:
    texts = {tokens.add(User("alice"), ["chat"]).text for _ in range(50)}
    assert len(texts) == 50
    assert {len(t) for t in texts} == {len("pdr_") + 43}


def test_the_database_holds_only_a_hash(tokens: AccessTokens, backend: Backend) -> None:
    made = tokens.add(User("alice"), ["chat"])
    stored = json.dumps(backend.execute("SELECT scope, key, value FROM state"))
    assert made.text not in stored
    assert made.text.removeprefix("pdr_") not in stored
    assert digest_of(made.text) in stored


@pytest.mark.parametrize("wrong", ["", "pdr_", "pdr_x", "x" * 10_000, "\udcff", "é", "pdr_" + "A" * 43])
def test_an_invalid_token_is_not_authenticated(wrong: str, tokens: AccessTokens, clock: FakeClock) -> None:
    tokens.add(User("alice"), ["chat"])
    assert authenticator(tokens, clock).authenticate(wrong) is None


def test_a_token_with_one_character_changed_is_not_authenticated(tokens: AccessTokens, clock: FakeClock) -> None:
    made, who = tokens.add(User("alice"), ["chat"]).text, authenticator(tokens, clock)
    assert [who.authenticate(t) for t in (made[:-1], made + "A", made.upper(), made.lower(), f" {made}")] == [None] * 5


def test_while_no_token_exists_local_requests_are_the_owners_without_shell(
    tokens: AccessTokens, clock: FakeClock
) -> None:
    who = authenticator(tokens, clock)
    assert who.authenticate(None) == who.authenticate("sk-anything") == LOCAL_OWNER
    assert LOCAL_OWNER.user == OWNER
    assert not LOCAL_OWNER.has_scope("shell")


def test_a_gateway_others_can_reach_has_no_owner(tokens: AccessTokens, clock: FakeClock) -> None:
    assert authenticator(tokens, clock, is_open=False).authenticate(None) is None
    assert authenticator(tokens, clock, is_open=False).authenticate("sk-anything") is None


def test_once_a_token_exists_one_is_required_even_after_revocation(tokens: AccessTokens, clock: FakeClock) -> None:
    made = tokens.add(User("alice"), ["chat"])
    assert authenticator(tokens, clock).authenticate(None) is None
    tokens.revoke("alice")
    assert authenticator(tokens, clock).authenticate(None) is None
    assert authenticator(tokens, clock).authenticate(made.text) is None


def test_an_expired_token_is_not_authenticated(tokens: AccessTokens, clock: FakeClock) -> None:
    made, who = tokens.add(User("alice"), ["chat"], expires_in_ms=DAY_MS), authenticator(tokens, clock)
    clock.pass_ms(DAY_MS - 1)
    assert who.authenticate(made.text) is not None
    clock.pass_ms(1)
    assert who.authenticate(made.text) is None
    assert tokens.all()[0].status(clock.now_ms()) == "expired"


def test_another_process_learns_of_a_revocation_within_seconds(
    tokens: AccessTokens, clock: FakeClock, backend: Backend
) -> None:
    made, who = tokens.add(User("alice"), ["chat"]), authenticator(tokens, clock)
    assert who.authenticate(made.text) is not None
    AccessTokens(backend.open(clock), clock).revoke(made.token.id)
    assert who.authenticate(made.text) is not None
    clock.pass_ms(int(MAX_AGE_S * 1000))
    assert who.authenticate(made.text) is None


def test_revoking_by_id_ends_one_and_by_user_all(tokens: AccessTokens, clock: FakeClock) -> None:
    first, second, other = (tokens.add(User(user), ["chat"]) for user in ("alice", "alice", "bob"))
    assert [t.digest for t in tokens.revoke(first.token.id)] == [first.token.digest]
    assert [t.digest for t in tokens.revoke("alice")] == [second.token.digest]
    who = authenticator(tokens, clock)
    assert [who.authenticate(t.text) is None for t in (first, second, other)] == [True, True, False]


@pytest.mark.parametrize("wrong", ["carol", "", "a", "0" * 12])
def test_revoking_an_unknown_token_is_an_error(wrong: str, tokens: AccessTokens) -> None:
    tokens.add(User("alice"), ["chat"])
    with pytest.raises(NotFound, match="token list"):
        tokens.revoke(wrong)


def test_a_short_piece_of_an_id_revokes_nothing(tokens: AccessTokens) -> None:
    made = tokens.add(User("alice"), ["chat"])
    with pytest.raises(NotFound):
        tokens.revoke(made.token.digest[:4])


@pytest.mark.parametrize("user", ["-x", "a b", "a/b", "..", "a" * 65, "ü", "a\n", "a\0"])
def test_names_that_could_be_mistaken_for_something_else_are_refused(user: str, tokens: AccessTokens) -> None:
    with pytest.raises(ConfigError, match="not a user name"):
        tokens.add(user_from_key(user), ["chat"])


@pytest.mark.parametrize("scopes", [[], ["root"], ["chat", "root"]])
def test_scopes_are_known_ones_and_at_least_one(scopes: list[str], tokens: AccessTokens) -> None:
    with pytest.raises(ConfigError, match="chat, read, shell, admin"):
        tokens.add(User("alice"), scopes)  # type: ignore[arg-type]  # wrong on purpose


def test_an_unknown_scope_is_ignored(tokens: AccessTokens, store: SessionStore, clock: FakeClock) -> None:
    made = tokens.add(User("alice"), ["chat"])
    rows = store.state("gateway:tokens")
    rows.set(made.token.digest, {**rows.get(made.token.digest), "scopes": ["chat", "from-the-future"]})
    assert authenticator(tokens, clock).authenticate(made.text) == Principal(User("alice"), frozenset({"chat"}))


def test_last_use_is_kept_to_the_minute(tokens: AccessTokens, clock: FakeClock) -> None:
    made, who = tokens.add(User("alice"), ["chat"]), authenticator(tokens, clock)
    assert tokens.all()[0].last_used_at_ms is None
    who.authenticate(made.text)
    used_at = clock.now_ms()
    clock.pass_ms(3_000)
    who.authenticate(made.text)
    assert (tokens.all()[0].last_used_at_ms or 0) - used_at == 3_000
    clock.pass_ms(3_000)
    who.authenticate(made.text)
    clock.pass_ms(3_000)
    who.authenticate(made.text)
    assert (tokens.all()[0].last_used_at_ms or 0) - used_at == 3_000


def test_a_revocation_is_not_undone_by_a_use_noted_elsewhere(tokens: AccessTokens, clock: FakeClock) -> None:
    made, who = tokens.add(User("alice"), ["chat"]), authenticator(tokens, clock)
    who.authenticate(made.text)
    tokens.revoke(made.token.id)
    clock.pass_ms(5_000)
    assert who.authenticate(made.text) is None
    assert tokens.all()[0].status(clock.now_ms()) == "revoked"


def test_a_database_outage_authenticates_no_request(
    tokens: AccessTokens, store: SessionStore, clock: FakeClock
) -> None:
    who = authenticator(tokens, clock)
    store.close()
    with pytest.raises(StoreError):
        who.authenticate(None)


def test_a_token_for_one_run_opens_everything_and_no_other_does() -> None:
    run, other = ProcessTokenAuthenticator(), ProcessTokenAuthenticator()
    assert run.authenticate(run.token) == Principal(OWNER, frozenset(SCOPES))
    assert [run.authenticate(t) for t in (None, "", other.token, run.token[:-1])] == [None] * 4


def test_the_address_of_the_web_ui_fits_sixty_columns() -> None:
    token = ProcessTokenAuthenticator().token
    assert len(f"http://127.0.0.1:65535/#token={token}") <= 60
    assert len(token.removeprefix("pdr_")) * 6 >= 128, "bits"
    assert token not in redact(f"Open http://127.0.0.1:8421/#token={token}"), "as every other token"
    assert token not in redact(f"the address has {token} in it")
