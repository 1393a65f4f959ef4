-- What the sender of a queued message asks of its turn, as JSON; empty: nothing.
-- Released: never edited, only followed by the next number.

ALTER TABLE inbox ADD COLUMN options {text} NOT NULL DEFAULT ''
