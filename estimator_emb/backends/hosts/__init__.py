"""Several hosts, each a process, that train together on PJRT devices."""
