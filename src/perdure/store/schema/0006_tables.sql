-- Vectors of messages for search by meaning, made in the background where the extra `recall` is installed.
-- Released: never edited, only followed by the next number.

CREATE TABLE message_vector (
  id {int} PRIMARY KEY REFERENCES message (id) ON DELETE CASCADE, passages {bytes} NOT NULL)
