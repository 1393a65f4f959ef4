-- The tables both databases share; {marks} are filled from the dialect. Statements are parted by an empty line.
-- Released: never edited, only followed by the next number.

CREATE TABLE conversation (
  id TEXT PRIMARY KEY, parent TEXT, kind TEXT NOT NULL, source TEXT NOT NULL, user_key TEXT NOT NULL,
  chat_key TEXT NOT NULL, title TEXT NOT NULL, todo TEXT NOT NULL, tip TEXT NOT NULL, fork_seq {int} NOT NULL,
  last_seq {int} NOT NULL, last_key {bytes} NOT NULL, created_at {int} NOT NULL, updated_at {int} NOT NULL)

CREATE INDEX conversation_updated ON conversation (updated_at, id)

CREATE INDEX conversation_user ON conversation (user_key)

CREATE INDEX conversation_chat ON conversation (chat_key)

CREATE INDEX conversation_parent ON conversation (parent)

CREATE TABLE session (
  id TEXT PRIMARY KEY, conversation TEXT NOT NULL REFERENCES conversation (id), parent TEXT, began_by TEXT NOT NULL,
  provider TEXT NOT NULL, model TEXT NOT NULL, api_mode TEXT NOT NULL, system_prompt {bytes} NOT NULL,
  prompt_encoding {int} NOT NULL, first_seq {int} NOT NULL, last_seq {int}, started_at {int} NOT NULL, ended_at {int},
  end_reason TEXT)

CREATE INDEX session_conversation ON session (conversation, first_seq)

CREATE TABLE message (
  id {serial}, conversation TEXT NOT NULL REFERENCES conversation (id), seq {int} NOT NULL, session TEXT NOT NULL,
  role TEXT NOT NULL, kind TEXT NOT NULL, body {bytes} NOT NULL, encoding {int} NOT NULL, chars {int} NOT NULL,
  key {bytes} NOT NULL, chained {int} NOT NULL, created_at {int} NOT NULL, UNIQUE (conversation, seq))

CREATE TABLE span (
  session TEXT NOT NULL REFERENCES session (id), ordinal {int} NOT NULL, lo {int} NOT NULL, hi {int} NOT NULL,
  PRIMARY KEY (session, ordinal))

CREATE TABLE handoff (
  conversation TEXT NOT NULL REFERENCES conversation (id), seq {int} NOT NULL, session TEXT NOT NULL,
  covers TEXT NOT NULL, replaced TEXT NOT NULL, model TEXT NOT NULL, focus TEXT NOT NULL, previous {int}, cost_usd {real},
  usage TEXT NOT NULL, verified TEXT NOT NULL, created_at {int} NOT NULL, PRIMARY KEY (conversation, seq))

CREATE TABLE call (
  id {serial}, conversation TEXT NOT NULL REFERENCES conversation (id), session TEXT NOT NULL, turn TEXT NOT NULL,
  task TEXT NOT NULL, provider TEXT NOT NULL, model TEXT NOT NULL, api_mode TEXT NOT NULL,
  input_tokens {int} NOT NULL, output_tokens {int} NOT NULL, cache_read_tokens {int} NOT NULL,
  cache_write_tokens {int} NOT NULL, reasoning_tokens {int} NOT NULL, cache_write_1h_tokens {int} NOT NULL,
  reported {int} NOT NULL, cost_usd {real}, estimate_tokens {int}, window_tokens {int}, threshold_tokens {int},
  composition TEXT NOT NULL, verdict TEXT NOT NULL, started_at {int} NOT NULL, ended_at {int} NOT NULL)

CREATE INDEX call_conversation ON call (conversation, session)

CREATE INDEX call_started ON call (started_at)

CREATE TABLE event (
  id {serial}, conversation TEXT NOT NULL REFERENCES conversation (id), session TEXT NOT NULL, kind TEXT NOT NULL,
  payload TEXT NOT NULL, created_at {int} NOT NULL)

CREATE INDEX event_conversation ON event (conversation, id)

CREATE TABLE output (
  number {serial}, id TEXT NOT NULL UNIQUE, conversation TEXT NOT NULL REFERENCES conversation (id),
  session TEXT NOT NULL, tool_call TEXT NOT NULL, chars {int} NOT NULL, bytes {int} NOT NULL, sha256 TEXT NOT NULL,
  place TEXT NOT NULL,
  is_indexed {int} NOT NULL, created_at {int} NOT NULL)

CREATE INDEX output_conversation ON output (conversation, number)

CREATE TABLE lease (
  conversation TEXT PRIMARY KEY, holder TEXT NOT NULL, token {int} NOT NULL, expires_at {int} NOT NULL)

CREATE TABLE state (scope TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (scope, key))

CREATE TABLE tombstone (id TEXT PRIMARY KEY, conversation TEXT NOT NULL, deleted_at {int} NOT NULL)

CREATE INDEX tombstone_conversation ON tombstone (conversation)

CREATE TABLE nowhere (id {int} PRIMARY KEY)

-- Lets one transaction delete a conversation or redact its bodies. A permit refers to a row that does not exist, checked
-- at commit: it must be gone again before its own transaction ends.
CREATE TABLE permit (
  conversation TEXT NOT NULL, deed TEXT NOT NULL,
  ends_with {int} NOT NULL DEFAULT 1 REFERENCES nowhere (id) DEFERRABLE INITIALLY DEFERRED,
  PRIMARY KEY (conversation, deed))
