"""Static analysis of shell commands: which parts of a command need approval.

text → `parse` (tree-sitter, converted to a tree of our own) → `analyzer` (variables, substitutions, wrappers such as
`sudo` or `bash -c`, followed to the command that really runs) → `rules` (risky invocations, and in `guards` what is not
known to be harmless) → `Danger`.
What cannot be read before it runs is a danger of its own, `unreadable`. Nothing is executed. Read first: `analyzer.py`,
then `invocation.py`. A seat belt for a well-meaning agent, not a sandbox.
"""

from __future__ import annotations
