"""An emulated TPU: its hosts and cores run in this process."""
