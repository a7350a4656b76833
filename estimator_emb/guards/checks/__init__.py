"""Checks that find mistakes of a program before they cost a training."""
