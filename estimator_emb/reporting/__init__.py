"""The text that users read: errors, log lines, suggestions and aligned tables."""
