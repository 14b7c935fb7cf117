#!/bin/sh
# Runs the tests on each other Python that uv finds on this machine, and measures the branches that they take on one of
# them, or on the own one if there is no other; no Python is downloaded.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
export UV_PYTHON_DOWNLOADS=never
# The commands that pyenv puts on the path fail for every version but the chosen one, and uv stops at the first of them.
for bin in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-9]*/bin; do
    [ ! -d "$bin" ] || PATH=$bin:$PATH
done

coverage=--cov
for version in 3.11 3.12 3.13 3.14; do
    [ "$version" != "$own" ] || continue
    if ! found=$("$uv" python find --no-project "$version" 2>/dev/null); then
        echo "--- Python $version: not found, not tested"
        continue
    fi
    echo "--- Python $version"
    "$uv" venv --quiet --clear --python "$found" ".venv-$version"
    "$uv" pip install --quiet --python ".venv-$version/bin/python" --require-hashes -r requirements/dev.txt
    "$uv" pip install --quiet --python ".venv-$version/bin/python" --no-deps --require-hashes -r requirements/agentdojo.txt
    "$uv" pip install --quiet --python ".venv-$version/bin/python" --no-deps --no-build-isolation -e .
    ".venv-$version/bin/python" -m pytest $coverage --numprocesses 2 --dist loadfile -p no:inline_snapshot
    coverage=
done
[ -z "$coverage" ] || .venv/bin/pytest $coverage --numprocesses 2 --dist loadfile -p no:inline_snapshot
