#!/bin/sh
# What `make check` runs, and `make test` beside the tests: the static checks, all of them even if one fails. pyright takes
# most of the time, so the others run beside it. Of the tests and benchmarks mypy alone checks the types, since pyright
# would take a minute for them; `make test-more` has pyright check all code.
set -u
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

run() { "${MAKE:-make}" --no-print-directory "$@"; }

run pyright PARTS="src examples scripts" >"$log" 2>&1 &
pyright=$!
run --keep-going check-format lint mypy types imports
others=$?
wait "$pyright"
code=$?
cat "$log"
[ "$code" -eq 0 ] && [ "$others" -eq 0 ]
