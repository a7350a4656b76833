"""One training step of the tables of a host."""
