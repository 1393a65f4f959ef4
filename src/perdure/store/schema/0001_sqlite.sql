-- Search and immutability, as SQLite spells them.

CREATE VIRTUAL TABLE message_index USING fts5 (
  parts, wholes, scope, content = '', columnsize = 0, prefix = '3', tokenize = "ascii tokenchars '_./-:@#+'")

INSERT INTO message_index (message_index, rank) VALUES ('automerge', 8)

CREATE VIRTUAL TABLE output_index USING fts5 (
  parts, wholes, scope, content = '', columnsize = 0, prefix = '3', tokenize = "ascii tokenchars '_./-:@#+'")

CREATE TRIGGER message_never_changes BEFORE UPDATE ON message
WHEN NOT EXISTS (SELECT 1 FROM permit WHERE conversation = OLD.conversation AND deed = 'scrub')
  OR (OLD.id, OLD.conversation, OLD.seq, OLD.session, OLD.role, OLD.kind, OLD.key, OLD.created_at)
  IS NOT (NEW.id, NEW.conversation, NEW.seq, NEW.session, NEW.role, NEW.kind, NEW.key, NEW.created_at)
BEGIN SELECT RAISE(ABORT, 'messages are never changed; only scrub may redact a body'); END

CREATE TRIGGER span_never_changes BEFORE UPDATE ON span
BEGIN SELECT RAISE(ABORT, 'spans are never changed'); END

CREATE TRIGGER span_never_goes BEFORE DELETE ON span
WHEN NOT EXISTS (
  SELECT 1 FROM session JOIN permit USING (conversation) JOIN tombstone USING (conversation)
  WHERE session.id = OLD.session AND permit.deed = 'delete')
BEGIN SELECT RAISE(ABORT, 'spans are never deleted; delete their whole conversation'); END

CREATE TRIGGER handoff_never_changes BEFORE UPDATE ON handoff
BEGIN SELECT RAISE(ABORT, 'handoffs are never changed'); END

CREATE TRIGGER call_never_changes BEFORE UPDATE ON call
BEGIN SELECT RAISE(ABORT, 'calls are never changed'); END

CREATE TRIGGER message_never_goes BEFORE DELETE ON message
WHEN NOT EXISTS (
  SELECT 1 FROM permit JOIN tombstone USING (conversation)
  WHERE permit.conversation = OLD.conversation AND permit.deed = 'delete')
BEGIN SELECT RAISE(ABORT, 'messages are never deleted; delete their whole conversation'); END

CREATE TRIGGER handoff_never_goes BEFORE DELETE ON handoff
WHEN NOT EXISTS (
  SELECT 1 FROM permit JOIN tombstone USING (conversation)
  WHERE permit.conversation = OLD.conversation AND permit.deed = 'delete')
BEGIN SELECT RAISE(ABORT, 'handoffs are never deleted; delete their whole conversation'); END

CREATE TRIGGER call_never_goes BEFORE DELETE ON call
WHEN NOT EXISTS (
  SELECT 1 FROM permit JOIN tombstone USING (conversation)
  WHERE permit.conversation = OLD.conversation AND permit.deed = 'delete')
BEGIN SELECT RAISE(ABORT, 'calls are never deleted; delete their whole conversation'); END

CREATE TRIGGER event_never_goes BEFORE DELETE ON event
WHEN NOT EXISTS (
  SELECT 1 FROM permit JOIN tombstone USING (conversation)
  WHERE permit.conversation = OLD.conversation AND permit.deed = 'delete')
BEGIN SELECT RAISE(ABORT, 'events are never deleted; delete their whole conversation'); END

CREATE TRIGGER tombstone_never_changes BEFORE UPDATE ON tombstone
BEGIN SELECT RAISE(ABORT, 'a tombstone is never changed'); END

CREATE TRIGGER tombstone_never_goes BEFORE DELETE ON tombstone
BEGIN SELECT RAISE(ABORT, 'a tombstone is never deleted'); END
