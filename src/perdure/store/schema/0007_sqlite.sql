-- The state of a call is as unchangeable as the rest of its row.
-- Released: never edited, only followed by the next number.

DROP TRIGGER message_never_changes

CREATE TRIGGER message_never_changes BEFORE UPDATE ON message
WHEN NOT EXISTS (SELECT 1 FROM permit WHERE conversation = OLD.conversation AND deed = 'scrub')
  OR (OLD.id, OLD.conversation, OLD.seq, OLD.session, OLD.role, OLD.kind, OLD.key, OLD.created_at, OLD.tool_state)
  IS NOT (NEW.id, NEW.conversation, NEW.seq, NEW.session, NEW.role, NEW.kind, NEW.key, NEW.created_at, NEW.tool_state)
BEGIN SELECT RAISE(ABORT, 'messages are never changed; only scrub may redact a body'); END
