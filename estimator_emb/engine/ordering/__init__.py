"""Orders a step so that a program reads variables before the step writes them."""
