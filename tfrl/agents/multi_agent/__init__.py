"""Agents made of others: one for each player, or one against its past."""
