"""Lets the processes of a cluster wait for each other and end together."""
