"""The Record section of a handoff: the compacted messages in order, rendered from the log at a falling resolution.

    record       draw the record within a budget: start reading at `RecordSource`
    statements   what messages state, in passages with a worth each
    documents    pages and files that were read, reduced to their statements
    outline      statements and calls in order, without a budget
    rendering    the options to show them, and the text of those that fit
    value_index  the Index section behind it: exact values that nothing else shows

Data flows one way: entries → statements and call lines → outline → options → text.
"""
