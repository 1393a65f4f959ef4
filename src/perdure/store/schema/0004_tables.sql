-- One user's conversations, last used first, without sorting them all. Statements are parted by an empty line.
-- Released: never edited, only followed by the next number.

CREATE INDEX conversation_of_user ON conversation (user_key, updated_at, id)
