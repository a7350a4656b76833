"""The step of one core as XLA takes it, and the PJRT devices that run it."""
