"""Built-in tools: shell, files, search, web, memory, plan, delegation. Each is a class that builds its tools."""
