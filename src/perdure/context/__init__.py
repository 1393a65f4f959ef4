"""Context engines: compact a conversation that outgrows its model's window.

    engine          the interface: plans of Keep and Insert, injected services
    registry        find engines by name; fall back to the built-in one
    compressor      the built-in engine; start reading at `ContextCompressor.steps`
      compaction_input   entries with token counts, and the plan made of them
      redacted_entries   redacted messages and a cache of them
      retention       choose what is kept: head, middle and tail
      tool_calls/     describe each tool call of the middle in a line
      task_state/     the state of the task, read from messages and calls, and the sections that code writes from it
      record/         the Record section: the middle in order, at a falling resolution; the Index
      summary_input, summarizer     request a summary from a model, and validate it
      exact_values, summary_check   what code extracts and verifies without a model
      handoff_writer  write the handoff of all these; handoff_sections fits the parts, handoff is its format
    text, patterns, fitting   sentences, passages and excerpts; patterns behind literals; what fits a budget
    user_text/      what users write: which words are their own, what they ask for, what binds
    api             `perdure.compress` and `acompress`: dicts in, dicts out
    notebook_engine   the second built-in engine: fresh windows with a notebook
    conformance     the test suite for engine authors

Data flows one way: input → retention → summary → handoff → plan. Nothing here accesses a store or the network.

In this package *the record* is one section of a handoff and a `Handoff` is the whole message as data. To *compact* is
what an engine does with a history; `compress` is the name of the calls that make it.
"""
