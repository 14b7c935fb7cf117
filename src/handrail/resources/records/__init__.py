"""Records: data of a program's own that takes part in the transactions of calls, without code of its own.

`records` has what a program makes; `containers` the dicts and lists that it consists of, and `changes` what rolls them
back.
"""
