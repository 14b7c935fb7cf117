"""`handrail sessions`: `listing` has `list`, `show` has `show` and `fork`, `removal` has `delete` and `prune`."""
