-- The tables both databases share; {marks} are filled from the dialect. Statements are parted by an empty line.
-- Released: never edited, only followed by the next number.

CREATE TABLE conversation (
  id {text} PRIMARY KEY, parent {text}, kind {text} NOT NULL, source {text} NOT NULL, user_key {text} NOT NULL,
  chat_key {text} NOT NULL, title {text} NOT NULL, todo {text} NOT NULL, tip {text} NOT NULL, fork_seq {int} NOT NULL,
  last_seq {int} NOT NULL, last_key {bytes} NOT NULL, created_at {int} NOT NULL, updated_at {int} NOT NULL)

CREATE INDEX conversation_updated ON conversation (updated_at, id)

CREATE INDEX conversation_user ON conversation (user_key)

CREATE INDEX conversation_chat ON conversation (chat_key)

CREATE INDEX conversation_parent ON conversation (parent)

CREATE TABLE session (
  id {text} PRIMARY KEY, conversation {text} NOT NULL REFERENCES conversation (id), parent {text}, began_by {text} NOT NULL,
  provider {text} NOT NULL, model {text} NOT NULL, api_mode {text} NOT NULL, system_prompt {bytes} NOT NULL,
  prompt_encoding {int} NOT NULL, first_seq {int} NOT NULL, last_seq {int}, started_at {int} NOT NULL, ended_at {int},
  end_reason {text})

CREATE INDEX session_conversation ON session (conversation, first_seq)

CREATE TABLE message (
  id {serial}, conversation {text} NOT NULL REFERENCES conversation (id), seq {int} NOT NULL, session {text} NOT NULL,
  role {text} NOT NULL, kind {text} NOT NULL, body {bytes} NOT NULL, encoding {int} NOT NULL, chars {int} NOT NULL,
  key {bytes} NOT NULL, chained {int} NOT NULL, created_at {int} NOT NULL, UNIQUE (conversation, seq))

CREATE TABLE span (
  session {text} NOT NULL REFERENCES session (id), ordinal {int} NOT NULL, lo {int} NOT NULL, hi {int} NOT NULL,
  PRIMARY KEY (session, ordinal))

CREATE TABLE handoff (
  conversation {text} NOT NULL REFERENCES conversation (id), seq {int} NOT NULL, session {text} NOT NULL,
  covers {text} NOT NULL, replaced {text} NOT NULL, model {text} NOT NULL, focus {text} NOT NULL, previous {int}, cost_usd {real},
  usage {text} NOT NULL, verified {text} NOT NULL, created_at {int} NOT NULL, PRIMARY KEY (conversation, seq))

CREATE TABLE call (
  id {serial}, conversation {text} NOT NULL REFERENCES conversation (id), session {text} NOT NULL, turn {text} NOT NULL,
  task {text} NOT NULL, provider {text} NOT NULL, model {text} NOT NULL, api_mode {text} NOT NULL,
  input_tokens {int} NOT NULL, output_tokens {int} NOT NULL, cache_read_tokens {int} NOT NULL,
  cache_write_tokens {int} NOT NULL, reasoning_tokens {int} NOT NULL, cache_write_1h_tokens {int} NOT NULL,
  reported {int} NOT NULL, cost_usd {real}, estimate_tokens {int}, window_tokens {int}, threshold_tokens {int},
  composition {text} NOT NULL, verdict {text} NOT NULL, started_at {int} NOT NULL, ended_at {int} NOT NULL)

CREATE INDEX call_conversation ON call (conversation, session)

CREATE INDEX call_started ON call (started_at)

CREATE TABLE event (
  id {serial}, conversation {text} NOT NULL REFERENCES conversation (id), session {text} NOT NULL, kind {text} NOT NULL,
  payload {text} NOT NULL, created_at {int} NOT NULL)

CREATE INDEX event_conversation ON event (conversation, id)

CREATE TABLE output (
  number {serial}, id {text} NOT NULL UNIQUE, conversation {text} NOT NULL REFERENCES conversation (id),
  session {text} NOT NULL, tool_call {text} NOT NULL, chars {int} NOT NULL, bytes {int} NOT NULL, sha256 {text} NOT NULL,
  place {text} NOT NULL,
  is_indexed {int} NOT NULL, created_at {int} NOT NULL)

CREATE INDEX output_conversation ON output (conversation, number)

CREATE TABLE lease (
  conversation {text} PRIMARY KEY, holder {text} NOT NULL, token {int} NOT NULL, expires_at {int} NOT NULL)

CREATE TABLE state (scope {text} NOT NULL, key {text} NOT NULL, value {text} NOT NULL, PRIMARY KEY (scope, key))

CREATE TABLE tombstone (id {text} PRIMARY KEY, conversation {text} NOT NULL, deleted_at {int} NOT NULL)

CREATE INDEX tombstone_conversation ON tombstone (conversation)

CREATE TABLE nowhere (id {int} PRIMARY KEY)

-- Lets one transaction delete a conversation or redact its bodies. A permit refers to a row that does not exist, checked
-- at commit: it must be gone again before its own transaction ends.
CREATE TABLE permit (
  conversation {text} NOT NULL, deed {text} NOT NULL,
  ends_with {int} NOT NULL DEFAULT 1 REFERENCES nowhere (id) DEFERRABLE INITIALLY DEFERRED,
  PRIMARY KEY (conversation, deed))
