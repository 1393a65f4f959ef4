"""Database backends: the port, SQLite and PostgreSQL."""
