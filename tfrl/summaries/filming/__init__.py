"""Videos of episodes, and charts beside the frames."""
