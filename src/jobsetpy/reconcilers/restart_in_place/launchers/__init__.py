"""Launchers of training frameworks, translated for the agent."""
