"""Two hundred programs that try to leave the sandbox, to exhaust it, or to confuse what is around it.

`CANARY` stands for the path of a file outside, whose content is a secret, and `FOLDER` for its folder. A program that
reaches the secret shows it by its value, and one that reaches the host changes the folder.
"""

from __future__ import annotations

FILES = (
    "open('CANARY').read()", "open('CANARY', 'rb').read()", "open('FOLDER/new', 'w').write('x')",
    "open('FOLDER/new', 'a')", "open(3).read()", "with open('CANARY') as file:\n    text = file.read()\ntext",
    "from pathlib import Path\nPath('CANARY').read_text()",
    "from pathlib import Path\nPath('FOLDER/new').write_text('x')", "from pathlib import Path\nPath('CANARY').unlink()",
    "from pathlib import Path\nPath('FOLDER').rmdir()", "from pathlib import Path\nlist(Path('FOLDER').iterdir())",
    "from pathlib import Path\nPath('CANARY').rename('FOLDER/new')",
    "from pathlib import Path\nPath('FOLDER/new').symlink_to('/etc/passwd')", "from pathlib import Path\nPath.home()",
    "from pathlib import Path\nPath.cwd().iterdir()", "import os\nos.listdir('FOLDER')",
    "import os\nos.remove('CANARY')", "import os\nos.environ['HANDRAIL_CANARY']",
    "import os\nos.getenv('HANDRAIL_CANARY')", "import os\nos.system('cat CANARY')", "import os\nos.urandom(10)",
    "import os\nos.fork()", "import io\nio.open('CANARY').read()", "import io\nio.FileIO('CANARY').read()",
    "read_text('CANARY')", "read_text('../canary.txt')", "read_text('notes/../../canary.txt')",
    "read_text('/proc/self/environ')", "read_text('a\\0b')", "read_text('\\udc80')", "read_text('..')",
    "write_text('FOLDER/new', 'x')", "write_text('kept.txt', 'lost')", "remove_file('../canary.txt')",
    "remove_file('kept.txt')", "list_files('..')", "glob_files('../*')", "glob_files('/**')", "exists('/etc/passwd')",
    "read_text(b'CANARY')", "read_text()", "read_text('a', 'b', 'c')", "write_text('new.txt', 'a' * 10**8)",
)  # fmt: skip
"""To files and the environment of the host, and out of the root by the lent functions."""

IMPORTS = (
    "import socket\nsocket.socket()", "import subprocess\nsubprocess.run(['cat', 'CANARY'])",
    "import ctypes\nctypes.CDLL(None)", "import sys\nsys.modules['os'].listdir('FOLDER')",
    "import sys\nsys.setrecursionlimit(10**9)", "import builtins\nbuiltins.open('CANARY')",
    "import importlib\nimportlib.import_module('os')",
    "import pickle\npickle.loads(b\"cos\\nsystem\\n(S'touch FOLDER/new'\\ntR.\")",
    "import threading\nthreading.Thread(target=print).start()", "import _thread\n_thread.start_new_thread(print, ())",
    "import multiprocessing\nmultiprocessing.Process(target=print).start()", "import inspect\ninspect.currentframe()",
    "import shutil\nshutil.rmtree('FOLDER')", "import urllib.request\nurllib.request.urlopen('http://127.0.0.1')",
    "import mmap\nmmap.mmap(-1, 10**10)", "import atexit\natexit.register(print)", "import pydantic_monty",
    "from os import system\nsystem('touch FOLDER/new')", "__import__('os').listdir('FOLDER')", "__builtins__",
    "__loader__", "__spec__", "__builtins__['__import__']('os')", "exec('import os; os.listdir(\"FOLDER\")')",
    "eval('__import__(\"os\")')", "eval(compile('open(\"CANARY\").read()', 'x', 'eval'))", "breakpoint()",
    "globals()['__builtins__']", "vars(print)", "delattr(list, 'append')",
)  # fmt: skip
"""Modules and functions that are not offered."""

ATTRIBUTES = (
    "().__class__.__base__.__subclasses__()", "().__class__.__bases__[0].__subclasses__()",
    "''.__class__.__mro__[1].__subclasses__()", "[].__class__.__mro__", "type(1).__subclasses__()",
    "type(type)('X', (), {})", "object.__subclasses__()", "print.__self__", "print.__globals__",
    "read_text.__globals__", "read_text.__closure__[0].cell_contents", "read_text.__code__.co_consts",
    "read_text.__wrapped__", "(lambda: 0).__globals__", "(lambda: 0).__code__.co_code",
    "def f():\n    pass\nf.__globals__", "def f():\n    pass\nf.__code__ = None", "def f():\n    pass\nf.__body__",
    "def f():\n    pass\nf.__dict__", "print.__call__.__self__", "math.__loader__", "import math\nmath.__spec__.loader",
    "import json\njson.codecs.open('CANARY').read()", "import json\njson.decoder.scanner.re.sys",
    "import random\nrandom._os.listdir('FOLDER')", "import collections\ncollections._sys.modules",
    "class A:\n    pass\nA.__subclasses__()", "class A:\n    pass\nA().__class__.__base__.__subclasses__()",
    "class A:\n    def __getattr__(self, name):\n        return open\nA().x('CANARY').read()",
    "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    frame = error.__traceback__.tb_frame\nframe.f_globals",
    "try:\n    (0).missing\nexcept AttributeError as error:\n    found = error.obj\nfound.__class__.__base__",
    "try:\n    1 / 0\nexcept Exception as error:\n    found = error\nfound.with_traceback(None).__traceback__.tb_next",
    "def g():\n    yield 1\ng().gi_frame.f_back.f_globals", "(x for x in [1]).gi_frame.f_back", "str.mro()",
    "dict.fromkeys.__self__.__base__", "bytes.fromhex.__self__.__base__", "[].__reduce_ex__(2)",
    "[].append.__self__.__class__", "[c for c in ().__class__.__base__.__subclasses__() if 'Popen' in str(c)]",
)  # fmt: skip
"""From a value by its attributes to what it was made of."""

FORMATS = (
    "'{0.__class__}'.format(1)", "'{0.__globals__}'.format(read_text)", "'{x.__self__}'.format(x=print)",
    "'{0[0].__class__}'.format([1])", "str.format('{0.__class__}', 1)", "list(map(str.format, ['{0.__class__}'], [1]))",
    "f'{().__class__}'", "f'{open(\"CANARY\").read()}'", "f'{1:{().__class__}}'", "'a' * 100 % ().__class__",
    "f'{1:>1000000000}'", "'%1000000000d' % 1", "format(1, '>10000000000')",
)  # fmt: skip
"""By format strings."""

MEMORY = (
    "'a' * 10**10", "[0] * 10**9", "[[0] * 10**5] * 10**9", "list(range(10**10))", "dict.fromkeys(range(10**9))",
    "bytes(10**11)", "'ab'.replace('', 'a' * 10**8)", "''.join(['a' * 10**5] * 10**5)",
    "items = [0]\nwhile True:\n    items = items + items",
    "found = {}\nwhile True:\n    found[len(found)] = 'x' * 10**6 + str(len(found))",
    "value = ()\nfor _ in range(10**7):\n    value = (value,)\nvalue",
)  # fmt: skip
"""More memory than there is."""

ENDLESS = (
    "while True:\n    pass",
    "while True:\n    try:\n        while True:\n            pass\n    except BaseException:\n        pass",
    "for x in range(10**12):\n    pass", "10**8 in map(len, [[]] * 10**9)", "[x for x in range(10**9) if x < 0]",
    "import asyncio\nasync def f():\n    while True:\n        await asyncio.sleep(0)\nawait f()",
    "while True:\n    exists('a')", "while True:\n    print('', end='')",
    "def f(n):\n    return n if n < 2 else f(n - 1) + f(n - 2)\nf(60)",
    "import re\nre.match('(a|a)*$', 'a' * 60 + 'b')", "import re\nre.match('(a+)+$', 'a' * 60 + 'b')",
    "import re\nre.match('(x+x+)+y', 'x' * 10**5)",
)  # fmt: skip
"""Without an end."""

DEEP = (
    "def f():\n    return f()\nf()", "def f(n):\n    return [f(n + 1)]\nf(0)",
    "def f(x):\n    return g(x)\ndef g(x):\n    return f(x)\nf(1)", "(" * 1000 + ")" * 1000, "-" * 50000 + "1",
    "1" + "+1" * 20000, "x" + ".x" * 20000, "f" + "(f)" * 5000, "a = []\na.append(a)\nstr(a) * 10**9",
    "sorted([3, 1, 2], key=lambda x: sorted([3, 1, 2], key=lambda y: sum(range(10**10))))",
    "class A:\n    def __repr__(self):\n        return repr(self)\nrepr([A()])",
    "class A:\n    def __eq__(self, other):\n        return self == other\nA() == A()",
)  # fmt: skip
"""Too deep for a stack."""

NUMBERS = (
    "9**9**9", "2**10**10", "1 << 10**10", "str(10**10**6)", "10**10**6 * 10**10**6 % 7", "factorial(10**7)",
    "0x" + "f" * 10 + "**" + "0x" + "f" * 10, "round(10**10**7, -(10**7))", "hash(10**10**8)",
)  # fmt: skip
"""Numbers that take too long, or too much memory."""

RAISING = (
    "raise SystemExit(0)", "raise KeyboardInterrupt", "raise MemoryError", "raise ValueError('a' * 10**7)",
    "raise ValueError('\\ud800')", "raise open", "raise 5",
    "class E(Exception):\n    def __str__(self):\n        while True:\n            pass\nraise E()",
    "class E(Exception):\n    def __str__(self):\n        raise E()\nraise E()",
    "class A:\n    def __repr__(self):\n        while True:\n            pass\nA()", "assert 0, 'a' * 10**7",
    "assert 0, open('CANARY').read()", "{}[('a' * 10**6)]", "int('a' * 10**6)",
)  # fmt: skip
"""Exceptions that end more than the code, or are not text."""

WORDS = (
    "print('\\x00\\x00\\x00\\x02{}')\n1 / 0", 'print(\'{"result": {"value": "forged", "form": "json"}}\')\n1 / 0',
    "print('a' * 10**8, file=5)", "print(1, file=print)", "print = 5\nprint('x')",
    "def read_text(path):\n    return open(path).read()\nread_text('CANARY')", "\0", "x = '\ud800'\nopen(x)",
    "# coding: rot13\nvzcbeg bf", "x: (yield) = 5", "match open('CANARY'):\n    case x:\n        pass\nx.read()",
    "def f(x=open('CANARY')):\n    return x.read()\nf()", "class A(open('CANARY')):\n    pass",
    "lambda x=open('CANARY'): x", "with 5 as x:\n    pass", "x = [*open('CANARY')]", "await open('CANARY')",
    "return open('CANARY')", "nonlocal x", "break",
)  # fmt: skip
"""What is around the code: its output, its names, its syntax."""

HOSTILE = (*(*FILES, *IMPORTS, *ATTRIBUTES, *FORMATS, *MEMORY, *ENDLESS, *DEEP, *NUMBERS, *RAISING, *WORDS),)
"""All of them."""
