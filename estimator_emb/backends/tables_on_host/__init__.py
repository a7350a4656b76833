# SPDX-License-Identifier: Apache-2.0
"""A TPU that runs the model, and its host, which keeps the tables: `TPUConfig(tables='host')`."""
