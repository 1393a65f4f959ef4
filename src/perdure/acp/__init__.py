"""The Agent Client Protocol over standard input and output: editors start `perdure acp` and talk to an agent."""
