"""Context engines: compact a conversation that outgrows its model's window.

    engine          the interface: plans of Keep and Insert, injected services
    registry        find engines by name; fall back to the built-in one
    compressor      the built-in engine; start reading at `compress`
      retention       choose what is kept: head, middle and tail
      transcript      the middle as short, redacted text
      summarizer      request a summary and validate it
      record/         the middle in order, and the state of the task, drawn from the log
      facts, summary_check, user_intent   what code extracts and verifies without a model
      authorship, standing_instructions   who wrote a passage, and what binds
      handoff_writer  write the handoff; sections assembles it, handoff is its format
    api             `perdure.compress` and `acompress`: dicts in, dicts out
    window_engine   the second built-in engine: fresh windows with a notebook
    conformance     the test suite for engine authors

Data flows one way: entries → retention → summary → handoff → plan. Nothing here accesses a store or the network.
"""
