"""What surrounds the steps of a training: progress, signals, and the processes of a cluster."""
