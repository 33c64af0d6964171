"""Which rows are drawn, and the transitions made of them."""
