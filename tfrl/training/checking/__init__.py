"""Whether the parts of a learner agree on what a value is."""
