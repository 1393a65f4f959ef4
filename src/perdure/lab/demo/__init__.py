"""`perdure demo`: a scripted agent works on a small generated repository until its window is full, several times over.

The model is scripted; the agent, its tools, the compactions, the log, the search and the accounting are real. `project`
generates the repository, `script` has the messages and the replies, `run` holds the conversation and a quiz about it.
"""
