# SPDX-License-Identifier: Apache-2.0
"""The command `estimator-emb`.

The installed script, bin/estimator-emb, does not run estimator_emb/__init__.py, which imports
TensorFlow: a help text, or the refusal of a wrong argument, would wait seconds for it. So the
modules of this room import at their top only what needs neither TensorFlow nor NumPy. The work of a
subcommand that needs them begins with `load_package()` and imports the rest after it.
"""


def load_package() -> None:
    """Runs estimator_emb/__init__.py, and with it TensorFlow's, where the script has not yet."""
    import estimator_emb

    if not hasattr(estimator_emb, "__all__"):
        estimator_emb.__spec__.loader.exec_module(estimator_emb)  # type: ignore[union-attr]
