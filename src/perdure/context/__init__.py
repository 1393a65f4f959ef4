"""What stays in the context when a conversation outgrows its window.

    engine       the contract: Keep / Insert plans, services handed in          registry  which engine is chosen
    compressor   the built-in engine; read `compress` first                     background  the same, without waiting
      boundaries   head, middle, tail                                           plain  dicts in, dicts out
      pruning, transcript   the middle as short, redacted text
      summarise, summary_check, sections   a model's notes, asked for, judged, read
      digest, facts/, grounding, instructions, active_task   what code knows better than a model
      writing, assemble, handoff, projection   one handoff between head and tail, ready to be sent
    conformance  the suite any engine's author can run

Data flows one way: entries → boundaries → notes → handoff → plan. Nothing here touches a store or a network.
"""
