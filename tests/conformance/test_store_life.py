"""Lifecycle on every database: a closed or forked store raises."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from perdure.core.errors import StoreError
from perdure.core.messages import user
from support.store import Backend

FORKING = """
    import os, sys
    from perdure.core.errors import StoreError
    from perdure.store import open_store
    store = open_store(sys.argv[1])
    if os.fork() == 0:
        try:
            store.create()
        except StoreError as error:
            print(error, flush=True)
        os._exit(0)
    os.wait()
    print("parent:", store.create().began_by)
"""


def test_a_closed_store_raises(backend: Backend) -> None:
    store = backend.open()
    session = store.create()
    store.close()
    store.close()
    for use in (lambda: store.history(session.id), lambda: store.append(session.id, user("x")), store.create):
        with pytest.raises(StoreError, match="closed"):
            use()


@pytest.mark.spec("I8")
def test_a_store_opened_before_a_fork_raises_in_the_child_and_works_in_the_parent(backend: Backend) -> None:
    command = [sys.executable, "-c", textwrap.dedent(FORKING), backend.where]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "open it again" in done.stdout
    assert done.stdout.endswith("parent: start\n")
