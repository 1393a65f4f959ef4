"""The least there is: an agent that answers. Uses the key it finds in the environment, else the embedded model."""

import perdure

agent = perdure.Agent()
print(agent.chat("Say hello in five words."))
print(f"go on with: perdure chat --resume {agent.session_id}")
