"""A program's TPU step on PJRT devices (CPUs, GPUs, TPUs), with its tables on the host."""
