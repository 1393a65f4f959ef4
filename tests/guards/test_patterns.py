"""No regular expression doubles its time with each word of a text: foreign text may repeat whatever it likes."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from support import pumped_patterns
from support.source_tree import ROOT


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer of processor time")
def test_no_pattern_takes_long_on_a_text_that_repeats_its_own_parts() -> None:
    run = [sys.executable, "-P", pumped_patterns.__file__]
    result = subprocess.run(run, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
