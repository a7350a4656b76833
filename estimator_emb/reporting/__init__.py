"""What people read: errors, lines of the log, suggestions and aligned text."""
