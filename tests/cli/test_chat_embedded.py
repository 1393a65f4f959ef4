"""Where no key is set, one question is answered by the embedded model, and it is said what that is good for."""

from __future__ import annotations

from pathlib import Path

from support.local import needs_local
from support.terminal import perdure


@needs_local
def test_one_question_without_a_key_says_who_answers_beside_the_answer(tmp_path: Path) -> None:
    done = perdure(tmp_path, "--set", "model.max_tokens=16", "chat", "-q", "Say hello.")
    assert done.status == 0
    assert done.out.strip()
    assert "embedded" not in done.out
    assert "the embedded model answers, a very small model" in done.err
    assert "fit for trying Perdure out" in done.err
    assert not list(tmp_path.rglob("*.db-wal"))  # closed, not just left
