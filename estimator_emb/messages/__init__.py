# SPDX-License-Identifier: Apache-2.0
"""What people read: errors, lines of the log, suggestions and aligned text."""
