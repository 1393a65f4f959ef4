"""Static analysis of shell commands: which parts of a command need approval.

text → `parse` (words, quotes, lists, here-documents) → `analyzer` (variables, substitutions, wrappers such as `sudo` or
`bash -c`, followed to the command that really runs) → `rules` (tables of risky invocations) → `Danger` values. Nothing
is executed. Read first: `analyzer.py`, then `invocation.py`. A seat belt for a well-meaning agent, not a sandbox.
"""

from __future__ import annotations
