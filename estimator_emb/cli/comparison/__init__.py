"""Compares two finished runs for `estimator-emb compare`."""


class CannotCompare(Exception):
    """Raised if two sides cannot be compared. The text says why."""
