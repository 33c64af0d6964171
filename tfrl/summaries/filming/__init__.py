"""Moving pictures of episodes, and what is shown beside them."""
