# SPDX-License-Identifier: Apache-2.0
"""The command `estimator-emb` as far as it goes without TensorFlow: its help, and what is wrong.

The script `estimator-emb` beside this file, which is installed, imports this package by the name
`estimator_emb_command`, because to import `estimator_emb.command` is to import TensorFlow first.
"""
