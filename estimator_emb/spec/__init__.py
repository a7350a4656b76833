"""Reads a program's settings: tables, features, where it runs, and its place in a cluster."""
