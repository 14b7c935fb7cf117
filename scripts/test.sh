#!/bin/sh
# What `make test` runs: some cases of each test, and the static checks beside them; all of it even if one fails. Fails if
# any did. `make test-more` runs all cases, measures the branches that they take, and has pyright check the tests too.
set -u
cd "$(dirname "$0")/.."
bin=.venv/bin
begun=$(date +%s)
log=$(mktemp)
trap 'rm -f "$log"' EXIT

sh scripts/check.sh >"$log" 2>&1 &
checks=$!
echo "--- pytest"
# Without its plugin a snapshot is the value in the file, and is compared as such; the plugin costs a part of each test.
HANDRAIL_TESTS=${HANDRAIL_TESTS:-short} "$bin/pytest" --forked-workers "${WORKERS:-3}" \
    --durations 10 --durations-min 1 -p no:inline_snapshot
tests=$?
wait "$checks"
static=$?
cat "$log"
echo "--- $(($(date +%s) - begun)) s in all; tests: exit code $tests, static checks: $static"
[ "$tests" -eq 0 ] && [ "$static" -eq 0 ]
