"""An emulated TPU: one host and N cores in this process."""
