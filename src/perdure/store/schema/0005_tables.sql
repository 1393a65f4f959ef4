-- Where a client that names no conversation is in one, by a fingerprint of what it holds; kept for a while.
-- Statements are parted by an empty line. Released: never edited, only followed by the next number.

CREATE TABLE fingerprint (
  print {text} NOT NULL PRIMARY KEY, conversation {text}, seq {int} NOT NULL, kept_at {int} NOT NULL)

CREATE INDEX fingerprint_kept ON fingerprint (kept_at)

CREATE INDEX fingerprint_conversation ON fingerprint (conversation)
