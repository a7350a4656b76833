"""Guards: checks, hooks and explanations for an estimator's calls and their graphs.

Each guard is a class in its own file. `every.GUARDS` lists all guards in the order in which they
run. Only the module `watching` calls them.
"""
