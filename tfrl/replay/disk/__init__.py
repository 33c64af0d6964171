"""Replays on disk, of which a save writes what changed."""
