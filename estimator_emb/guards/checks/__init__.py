"""Checks that find a program's mistakes before they waste a training."""
