"""What a shell command would do, found by reading it as a shell does, and which of that a person should be asked about.

text → `parser` (words, quotes, lists, here-documents) → `walk` (variables, substitutions, wrappers such as `sudo` or
`bash -c`, followed to what really runs) → `rules` (tables of what is dangerous) → `Danger` values. Nothing is executed.
Read first: `detect.py`, then `run.py`. This is a seat belt for an agent that means well, not a sandbox.
"""
