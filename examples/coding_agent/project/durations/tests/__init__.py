"""The tests of the package: `python -m unittest`."""
