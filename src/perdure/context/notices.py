"""What a person is told about compaction. None of it is ever shown to the model."""

from __future__ import annotations


def compacted_often(times: int) -> str:
    """From the second compaction of a chain on (E10); "" before."""
    if times < 2:
        return ""
    return (
        f"This conversation has now been compacted {times} times; with each, some accuracy may be lost."
        " Start afresh with /new, or have lasting facts stored in memory."
    )


def paused(passes: int) -> str:
    """Automatic compaction stopped because it does not help (C5)."""
    return (
        f"Automatic compaction is paused: {passes} passes in a row saved too little. It resumes once a prompt fits"
        " again. /compress tries now; /new starts afresh."
    )


def codex_raised(threshold: float, tokens: int) -> str:
    """The one route whose threshold is raised (C6)."""
    return (
        f"On openai-codex, gpt-5.5 has a smaller window than elsewhere, so compaction waits until {threshold:.0%} of it"
        f" ({tokens:,} tokens). To turn this off: perdure config set compression.codex_gpt55_autoraise false"
    )


def small_summary_window(summary_window: int, window: int) -> str:
    """The summary model reads less at once than the main one (J10)."""
    return (
        f"The summary model's window ({summary_window:,} tokens) is smaller than the main model's ({window:,}): long"
        " histories are summarised in parts. The threshold is not affected."
    )
