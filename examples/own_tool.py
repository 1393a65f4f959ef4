"""A tool of your own, called by a model: here a scripted one on loopback, so no key and no network are needed."""

import tempfile
from typing import Annotated

import perdure
from perdure.testing.simulator import Call, Say, Simulator


def tide(harbour: Annotated[str, "a harbour, e.g. Brest"], hours: Annotated[int, "how far ahead"] = 6) -> str:
    """Looks up when the tide turns."""
    return f"high water at {harbour} in {hours - 2} hours"


SCRIPT = [Say(calls=(Call("tide", {"harbour": "Brest"}), Call("tide", {"harbor": "Kiel"}))), Say("Go at four.")]

with Simulator(script=SCRIPT) as simulator, tempfile.TemporaryDirectory() as folder:
    agent = perdure.Agent(
        model="sim",
        provider="custom",
        base_url=simulator.base_url,
        api_key="none",
        store=f"{folder}/perdure.db",
        tools=[tide],  # a typed function with a docstring is a tool; None would offer the default ones
    )
    result = agent.run_conversation("When can I sail?")
    for message in result.messages:
        if message["role"] == "tool":
            print("tool said: ", message["content"])
    print("model said:", result.final_response)
