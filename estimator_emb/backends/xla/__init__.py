"""Lowers the step of a core to XLA, and runs it on PJRT devices."""
