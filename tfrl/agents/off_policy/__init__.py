"""Agents that learn from whatever a replay holds."""
