"""Watches an estimator's calls and their graphs: checks, and the explanations of errors.

There is a file for each subject. A check is a function in the file of its subject. `events` lists
the events for which a check can be registered, and `watching` runs the checks.
"""
