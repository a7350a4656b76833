"""Runs the tests of a stand-in `ours` also on TensorFlow's own module, if it exists."""

import importlib

import harness


def pytest_generate_tests(metafunc):
    if "module" in metafunc.fixturenames:
        modules = [metafunc.module.ours]
        if harness.IS_2_15:
            modules.append(importlib.import_module(metafunc.module.THEIRS))
        names = [module.__name__.split(".")[0] for module in modules]
        metafunc.parametrize("module", modules, ids=names)
