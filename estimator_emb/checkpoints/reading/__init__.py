"""What a checkpoint holds, read without a program."""
