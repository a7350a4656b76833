"""The command `estimator-emb`.

The installed script, bin/estimator-emb, skips estimator_emb/__init__.py, because that file imports
TensorFlow. A help text or an argument error would wait seconds for this import. So the modules here
import at their top only what needs neither TensorFlow nor NumPy. A subcommand that needs them first
calls `load_package()`, then imports the rest.
"""


def load_package() -> None:
    """Runs estimator_emb/__init__.py, which imports TensorFlow, unless it has run already."""
    import estimator_emb
    from estimator_emb.cli import quiet_start

    if not hasattr(estimator_emb, "__all__"):
        with quiet_start.quiet():
            estimator_emb.__spec__.loader.exec_module(estimator_emb)  # type: ignore[union-attr]
            quiet_start.look_for_gpus()
