"""What a TPU would say of a run, asked of a CPU."""
