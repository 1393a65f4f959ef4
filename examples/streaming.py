"""Everything that happens in a turn, as it happens: as events, or through callbacks."""

import asyncio

import perdure
from perdure.core.events import TextDelta, TurnFinished
from perdure.testing.simulator import Simulator


async def main() -> None:
    with Simulator(script=["The tide comes in.", "The tide goes out."]) as service:
        agent = perdure.Agent(model="any", base_url=service.base_url)
        async for event in agent.stream("What does the tide do?"):
            match event:
                case TextDelta(text):
                    print(text, end="", flush=True)
                case TurnFinished(usage=usage):
                    print(f"\n[{usage.prompt_tokens} tokens in, {usage.output_tokens} out]")

        heard = []
        callbacks = {"stream_delta_callback": heard.append, "step_callback": lambda text: print(f"callback: {text}")}
        other = perdure.Agent(model="any", base_url=service.base_url, callbacks=callbacks)
        await other.achat("And then?")


asyncio.run(main())
