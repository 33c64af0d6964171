"""What is wrong with an environment, found out by playing it."""
