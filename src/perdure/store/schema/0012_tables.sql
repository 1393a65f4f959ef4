-- The folder that the runs of a schedule work in; NULL: that of the gateway.
-- Released: never edited, only followed by the next number.

ALTER TABLE schedule ADD COLUMN folder {text}
