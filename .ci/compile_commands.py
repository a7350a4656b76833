#!/usr/bin/env python3
"""Writes compile_commands.json, which tells editors and clang-tidy how to compile each source.

    python .ci/compile_commands.py

Run it in an environment with this package and TensorFlow. It writes the file beside setup.cfg.
"""

import json
import pathlib

from estimator_emb.native import build, ops

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def commands() -> list[dict[str, str | list[str]]]:
    """Returns an entry for each source, with the flags of the build."""
    of_ops, *of_kernels = ops.units()
    units = {build.HERE / "kernels.cc": of_kernels[0]}
    # Editors also need the flags of the files that all_ops.cc includes.
    for file in sorted(build.HERE.glob("*.cc")):
        units.setdefault(file, of_ops)
    found = ops.installed_tensorflow()
    return [
        {
            "directory": str(REPOSITORY),
            "file": str(file),
            "arguments": ["c++", *build.compile_flags(unit, found), "-c", str(file)],
        }
        for file, unit in units.items()
    ]


if __name__ == "__main__":
    path = REPOSITORY / "compile_commands.json"
    path.write_text(json.dumps(commands(), indent=2) + "\n")
    print(f"{path}: {len(commands())} sources")
