"""Replay recorded sessions through the real agent under any context policy, and measure cost and memory offline.

log → `importers` → `sessions` (turns) → `run` (agent, `provider`, `policies`) → `measures` → `batch` → `report`.
"""
