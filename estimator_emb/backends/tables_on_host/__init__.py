# SPDX-License-Identifier: Apache-2.0
"""Runs a model on a TPU, with the tables on its host: `TPUConfig(tables='host')`."""
