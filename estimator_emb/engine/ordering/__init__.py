"""Orders the ops of a step: reads of variables before writes, and checks before writes."""
