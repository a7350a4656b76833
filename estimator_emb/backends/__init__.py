"""The places where a program can run; `choose` takes the one that it asks for."""
