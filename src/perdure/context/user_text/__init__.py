"""Read user messages without a model: which words are the user's own, what they ask for, what binds later work.

    authorship              separate typed from pasted text; paste_patterns has the patterns
    intent                  the user's sentences, directions and requests: start reading at `read_sentences`
    standing_instructions   which sentences bind later work; instruction_scope: for how long

Data flows one way: message → authored text → sentences → rules, corrections and wishes.
"""
