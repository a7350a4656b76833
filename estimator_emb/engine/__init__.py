"""The lookup and the training step of the embedding tables on the host."""
