"""The command `estimator-emb`.

The installed script, bin/estimator-emb, does not run estimator_emb/__init__.py, which imports
TensorFlow: a help text, or the refusal of a wrong argument, would wait seconds for it. So these
modules import at their top only what needs neither TensorFlow nor NumPy. A subcommand that needs
them begins its work with `load_package()` and imports the rest after it.
"""


def load_package() -> None:
    """Runs estimator_emb/__init__.py, and with it TensorFlow's, unless it has run."""
    import estimator_emb
    from estimator_emb.cli import quiet_start

    if not hasattr(estimator_emb, "__all__"):
        with quiet_start.quiet():
            estimator_emb.__spec__.loader.exec_module(estimator_emb)  # type: ignore[union-attr]
            quiet_start.look_for_gpus()
