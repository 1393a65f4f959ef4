"""What is dangerous, as tables: one row per claim, each with a command that shows it. Read `rule.py` first."""
