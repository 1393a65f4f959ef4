-- Messages a gateway has taken: on disk before their sender is told so, run in order, once, by whoever owns them.
-- Statements are parted by an empty line. Released: never edited, only followed by the next number.

CREATE TABLE inbox (
  number {serial}, id {text} NOT NULL UNIQUE, lane {text} NOT NULL, platform {text} NOT NULL, user_key {text} NOT NULL,
  chat {text} NOT NULL, scopes {text} NOT NULL, key {text}, content {text} NOT NULL, conversation {text},
  begin_seq {int}, state {text} NOT NULL, result {text} NOT NULL, owner {text} NOT NULL, expires_at {int} NOT NULL,
  wants_stop {int} NOT NULL, taken_at {int} NOT NULL, done_at {int})

CREATE UNIQUE INDEX inbox_key ON inbox (platform, user_key, key)

CREATE INDEX inbox_open ON inbox (lane, number) WHERE state <> 'done'

CREATE INDEX inbox_conversation ON inbox (conversation)

CREATE INDEX inbox_done ON inbox (done_at)
