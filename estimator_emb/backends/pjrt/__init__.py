"""Runs a TPU program's step on PJRT devices: CPUs, GPUs or TPUs. Its tables may be there, too."""
