"""A TPU whose embedding hardware holds the tables."""
