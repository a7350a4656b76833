"""Backends: where a program can run. `choose` selects the backend that a program requests."""
