"""The bytes of checkpoints: their index, their values, and writing them."""
