-- How the call of a tool result ended; NULL for other messages and for results older than this.
-- Released: never edited, only followed by the next number.

ALTER TABLE message ADD COLUMN tool_state {text}
