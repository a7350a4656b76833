# SPDX-License-Identifier: Apache-2.0
"""A program's TPU step on PJRT devices: CPUs, GPUs and the TPUs of today, with tables on the host."""
