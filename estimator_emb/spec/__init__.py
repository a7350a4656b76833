"""What a program specifies: tables, features, where it runs, and its place in a cluster."""
