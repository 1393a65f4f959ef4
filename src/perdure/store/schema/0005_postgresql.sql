-- Fingerprints stood among other small values until now; they age from today on.
-- Released: never edited, only followed by the next number.

INSERT INTO fingerprint (print, conversation, seq, kept_at)
  SELECT key, CAST(value AS json) ->> 'conversation', CAST(CAST(value AS json) ->> 'seq' AS BIGINT),
    CAST(EXTRACT(EPOCH FROM now()) AS BIGINT) * 1000
  FROM state WHERE scope = 'gateway:openai threads'

DELETE FROM state WHERE scope = 'gateway:openai threads'
