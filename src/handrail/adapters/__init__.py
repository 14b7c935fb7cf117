"""The doors through which calls reach the pipeline. Each is imported by its own module, and so is what it needs."""
