"""The tools people expect: a shell, files, search, the web, a question back. Each is a class bound to a workspace."""
