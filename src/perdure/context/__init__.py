"""Context engines: compact a conversation that outgrows its model's window.

    engine          the interface: plans of Keep and Insert, injected services
    registry        find engines by name; fall back to the built-in one
    compressor      the built-in engine; start reading at `compress`
      boundaries      split a history into head, middle and tail
      transcript      the middle as short, redacted text
      summarizer      request a summary, validate it; sections parses it
      facts, grounding, user_intent            what code extracts and verifies without a model
      handoff_writer, assembly, handoff, head  one handoff between head and tail, ready to send
    api             `perdure.compress` and `acompress`: dicts in, dicts out
    conformance     the test suite for engine authors

Data flows one way: entries → boundaries → summary → handoff → plan. Nothing here accesses a store or the network.
"""
