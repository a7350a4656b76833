"""Creates, names, places and stores the embedding tables of the host."""
