"""What a run is told, by gin or by files, and the source that it ran."""
