"""Replays on the disk, saved incrementally: a save writes what changed."""
