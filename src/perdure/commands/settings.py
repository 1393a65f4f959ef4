"""`/model [name]`, `/stop`, `/help`, `/quit`."""

from __future__ import annotations

from perdure.commands.command import Command, Said, Surface
from perdure.commands.figures import gauge_line, measured


def model(surface: Surface, argument: str) -> Said:
    if argument:
        chosen = surface.choose_model(argument)
        measured(surface.agent)  # so that whoever shows the gauge shows the new model's window at once
        return Said(f"Going on with {chosen}.")
    gauge = measured(surface.agent)
    return Said(f"{gauge.model}\n{gauge_line(gauge)}")


def stop(surface: Surface, argument: str) -> Said:
    surface.agent.interrupt()
    return Said("Stopped.")


def leave(surface: Surface, argument: str) -> Said:
    return Said("", is_leaving=True)


MODEL = Command("model", "/model [name]", "show the model, or go on with another", model)
STOP = Command("stop", "/stop", "stop the turn under way", stop)
QUIT = Command("quit", "/quit", "leave; the conversation is kept", leave)
