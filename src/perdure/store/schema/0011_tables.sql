-- The conversation that a queued message was addressed to, if it named one: its queue may be that of a chat.
-- Released: never edited, only followed by the next number.

ALTER TABLE inbox ADD COLUMN named_conversation {text}
