"""Describe tool calls: one line for each, by what ran and what its output proves.

`call_line` has the result: read it first. `describe` picks the reader of a call. Commands: `shell` parses them and
`commands` describes them, with `git`, `test_runs`, `builds` and `logs` for their outputs. Other calls: `edits`,
`json_results`, `services`, `tasks`. `undone_edits` tells which edits later calls took back, with `work_tree`
for what git does to uncommitted changes. Shared: `output` is the bounded text of a result, `output_extent` how much of
the whole it is, `compose` puts line and detail together.
"""
