"""Guards: what watches the calls of an estimator and the graphs that they build.

A guard is a class in a file of its own. `every.GUARDS` names all guards, in the order in which they
act. `watching` runs them; no other module calls one.
"""
