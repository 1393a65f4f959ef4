"""Deprecated alias: `register_tool_plugin` lives in `perdure.tools.toolbox`."""

from perdure.tools.toolbox import register_tool_plugin as register_tool_plugin
