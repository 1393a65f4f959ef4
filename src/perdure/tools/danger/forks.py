"""Commands that start themselves again and again."""

from __future__ import annotations

from perdure.tools.danger.syntax import Function, Group, Loop, Node, Pipeline, Simple, Variable


def multiplies(function: Function) -> bool:
    return any(_calls_twice(n, function.name) for n in function.body)


def _calls_twice(node: Node, name: str) -> bool:
    if isinstance(node, Pipeline):
        calls = sum(isinstance(c, Simple) and bool(c.words) and c.words[0].bare == name for c in node.commands)
        if calls > 1 or (calls and node.is_background):
            return True
        return any(_calls_twice(c, name) for c in node.commands)
    if isinstance(node, Group | Loop):
        return any(_calls_twice(n, name) for n in node.body)
    return False


def runs_itself(node: Node) -> bool:
    if not isinstance(node, Simple) or not node.words:
        return False
    return any(isinstance(p, Variable) and p.name == "0" for p in node.words[0].parts)
