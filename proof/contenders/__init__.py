"""A program for each column of the table: the same tools and the same model, as the project's own pages show them.

Each is at most a page. Its function `run` brings a conversation to its end, and continues one that was killed if the
project can do so.
"""
