# SPDX-License-Identifier: Apache-2.0
"""What the command `estimator-emb` does, one module for each of its subcommands."""
