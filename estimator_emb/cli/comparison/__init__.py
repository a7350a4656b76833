"""What `estimator-emb compare` finds out about two runs when they have ended."""


class CannotCompare(Exception):
    """The error of two sides that cannot be compared; its text says why."""
