"""Keep a loop of your own within its window: plain dicts in, plain dicts out. No key and no network needed."""

import perdure

compressor = perdure.ContextCompressor(context_length=16_000)  # summarize=… lets a model write the handoff
messages = [{"role": "system", "content": "You are a careful build engineer."}]

for n in range(1, 31):
    messages.append({"role": "user", "content": f"Build target_{n} and tell me what failed."})
    call = {"id": f"c{n}", "type": "function", "function": {"name": "make", "arguments": f'{{"target": "target_{n}"}}'}}
    messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
    messages.append({"role": "tool", "tool_call_id": f"c{n}", "content": f"cc -c src/file_{n}.c\n" * 120})
    messages.append({"role": "assistant", "content": f"target_{n} builds; nothing failed."})

    if compressor.should_compress(perdure.estimate_tokens(messages)):
        done = compressor.compress(messages)
        messages = done.messages
        print(f"after request {n}: {done.before_tokens:,} → {done.after_tokens:,} tokens")
