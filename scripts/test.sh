#!/bin/sh
# What `make test` runs: some cases of each test, and the static checks beside them; all of it even if one fails. Fails if
# any did. Of the tests mypy alone checks the types, since pyright would take a minute for them. `make test-more` runs
# all cases, measures the branches that they take, and has pyright check the tests too.
set -u
cd "$(dirname "$0")/.."
bin=.venv/bin
begun=$(date +%s)
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

check_statically() {
    failed=0
    for check in check-format lint pyright mypy types imports; do
        "${MAKE:-make}" --no-print-directory "$check" PARTS="src examples scripts" || failed=1
    done
    return $failed
}

check_statically >"$logs/static" 2>&1 &
checks=$!
echo "--- pytest"
# Without its plugin a snapshot is the value in the file, and is compared as such; the plugin costs a part of each test.
HANDRAIL_TESTS=${HANDRAIL_TESTS:-short} "$bin/pytest" --forked-workers "${WORKERS:-3}" \
    --durations 10 --durations-min 1 -p no:inline_snapshot
tests=$?
wait "$checks"
static=$?
cat "$logs/static"
echo "--- $(($(date +%s) - begun)) s in all; tests: exit code $tests, static checks: $static"
[ "$tests" -eq 0 ] && [ "$static" -eq 0 ]
