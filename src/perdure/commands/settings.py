"""`/model [name]`, `/stop`, `/help`, `/quit`."""

from __future__ import annotations

from perdure.commands.command import Command, CommandContext, CommandResult
from perdure.commands.figures import gauge_line, measured


def model(surface: CommandContext, argument: str) -> CommandResult:
    if argument:
        chosen = surface.choose_model(argument)
        measured(surface.agent)  # so that whoever shows the gauge shows the new model's window at once
        return CommandResult(f"Going on with {chosen}.")
    gauge = measured(surface.agent)
    return CommandResult(f"{gauge.model}\n{gauge_line(gauge)}")


def stop(surface: CommandContext, argument: str) -> CommandResult:
    surface.agent.interrupt()
    return CommandResult("Stopped.")


def leave(surface: CommandContext, argument: str) -> CommandResult:
    return CommandResult("", is_leaving=True)


MODEL = Command("model", "/model [name]", "show the model, or go on with another", model)
STOP = Command("stop", "/stop", "stop the turn under way", stop)
QUIT = Command("quit", "/quit", "leave; the conversation is kept", leave)
