"""Load, its record, and the verdict: everything that judges the service from outside."""
