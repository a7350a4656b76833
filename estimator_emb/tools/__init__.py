# SPDX-License-Identifier: Apache-2.0
"""The subcommands of `estimator-emb`, one module each."""
