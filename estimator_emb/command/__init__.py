# SPDX-License-Identifier: Apache-2.0
"""The part of the command `estimator-emb` that needs no TensorFlow: its arguments and its help.

The installed script `estimator-emb`, which is beside this file, imports this package by the name
`estimator_emb_command`, because an import of `estimator_emb.command` would import TensorFlow first.
"""
