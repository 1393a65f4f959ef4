"""The state of a task, read from the log, and the sections of a handoff that code writes from it.

    state        the typed state: start reading here
    reader       fold messages and call lines into the state, with the help of:
      requests     which requests are open, answered, cancelled
      decisions    decisions, plans and choices, of either side
      answers      what came of the answered requests
      replies      what a reply answers, asks and changed
      proposals    what "yes" or "option 2" takes up
      inherited    the goal and the open work of a summary by another program
      work         files, commits, tests and errors, from the calls
      edit_log     which edits were undone
      step_log     repeated steps, from the calls
    sections     write the thirteen sections; active_task writes the first, instructions the user's rules
    merging      merge the sections of a model with them

Data flows one way: entries and call lines → `read_state` → `TaskState` → `write_sections`.
"""
