#!/bin/sh
# What `make test` runs: the static checks beside the tests, all of them even if one fails. Fails if any did.
set -u
cd "$(dirname "$0")/.."
bin=.venv/bin
begun=$(date +%s)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

check_statically() {
    failed=0
    for check in check-format lint pyright mypy types imports; do
        "${MAKE:-make}" --no-print-directory "$check" || failed=1
    done
    return $failed
}

check_statically >"$logs/static" 2>&1 &
checks=$!
# Branch coverage costs little where Python itself reports which branches were taken, from 3.14 on. Where a tracer has to,
# it costs half of the time again, and `make test-more` measures it.
coverage=$("$bin/python" -c 'import sys; print("--cov" if sys.version_info >= (3, 14) else "")')
echo "--- pytest"
# Without its plugin a snapshot is the value in the file, and is compared as such; the plugin costs a part of each test.
COVERAGE_CORE=sysmon "$bin/pytest" $coverage --numprocesses "${WORKERS:-3}" --dist loadfile \
    --no-loadscope-reorder --durations 10 --durations-min 1 -p no:inline_snapshot
tests=$?
wait "$checks"
static=$?
cat "$logs/static"
echo "--- $(($(date +%s) - begun)) s in all; tests: exit code $tests, static checks: $static"
[ "$tests" -eq 0 ] && [ "$static" -eq 0 ]
