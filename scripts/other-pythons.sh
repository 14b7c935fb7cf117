#!/bin/sh
# Runs the tests on each other Python that uv finds on this machine; no Python is downloaded. The first of them runs all
# cases, and the branches that they take are measured; if there is no other, the own one does that. The rest run some
# cases of each test, as `make test` does: the cases of a test differ in what they put in, and versions in what they do.
set -eu
cd "$(dirname "$0")/.."
uv=.venv/bin/uv
own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')
export UV_PYTHON_DOWNLOADS=never
# The commands that pyenv puts on the path fail for every version but the chosen one, and uv stops at the first of them.
for bin in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.1[1-9]*/bin; do
    [ ! -d "$bin" ] || PATH=$bin:$PATH
done

# On Python 3.12 and later DBOS needs SQLite 3.42 (`dbos._migration`), which a Python of an older system may not have.
left_out() {
    "$1" -c 'import sqlite3, sys; sys.exit(sys.version_info < (3, 12) or sqlite3.sqlite_version_info >= (3, 42))' || return 0
    echo "--- without DBOS on SQLite, which needs SQLite 3.42 here" >&2
    echo "--deselect=tests/crash/test_engine_kills.py --deselect=tests/docs/test_engines.py" \
        "--deselect=tests/adapters/test_engines.py::test_a_conversation_that_the_engine_stores_is_not_stored_twice"
}

all_cases() {
    # shellcheck disable=SC2046 # they are words
    "$1" -m pytest --cov --numprocesses 2 --dist loadfile --no-loadscope-reorder -p no:inline_snapshot $(left_out "$1")
}

some_cases() {
    # shellcheck disable=SC2046 # as above
    HANDRAIL_TESTS=short "$1" -m pytest --forked-workers 3 -p no:inline_snapshot $(left_out "$1")
}

run=all_cases
for version in 3.11 3.12 3.13 3.14; do
    [ "$version" != "$own" ] || continue
    if ! found=$("$uv" python find --no-project "$version" 2>/dev/null); then
        echo "--- Python $version: not found, not tested"
        continue
    fi
    echo "--- Python $version"
    "$uv" venv --quiet --clear --python "$found" ".venv-$version"
    "$uv" pip install --quiet --python ".venv-$version/bin/python" --require-hashes -r requirements/dev.txt
    "$uv" pip install --quiet --python ".venv-$version/bin/python" --no-deps --require-hashes -r requirements/gold.txt
    "$uv" pip install --quiet --python ".venv-$version/bin/python" --no-deps --no-build-isolation -e .
    "$run" ".venv-$version/bin/python"
    run=some_cases
done
[ "$run" = some_cases ] || all_cases .venv/bin/python
