"""A TPU that holds the tables in its embedding hardware."""
