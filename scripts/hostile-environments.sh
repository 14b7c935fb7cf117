#!/bin/sh
# Runs the fast part of the tests in environments that differ from a terminal on a quiet machine: in the background, with
# standard input closed, in a folder whose name has blanks, with 1 and 4 workers, beside processes that keep all cores
# busy, in random order, as root and as another user. Usage: scripts/hostile-environments.sh [NAME...]
# An environment changes what a test does, and not one of its cases: some cases of each test are run, as by `make test`.
set -u
export HANDRAIL_TESTS="${HANDRAIL_TESTS:-short}"
cd "$(dirname "$0")/.."
here=$PWD
work=$(mktemp -d "${TMPDIR:-/tmp}/handrail hostile.XXXXXX")
trap 'rm -rf "$work"' EXIT
failed=

fast() { make --no-print-directory test-fast "$@"; }

terminal_less() { setsid sh -c 'make --no-print-directory test-fast' </dev/null; }

input_closed() { fast <&-; }

background() {
    # A shell has commands in the background of a script ignore SIGINT, and each child inherits that.
    sh -c 'make --no-print-directory test-fast & wait $!'
}

one_worker() { fast WORKERS=1; }

four_workers() { fast WORKERS=4; }

busy_cores() {
    hogs=
    for _ in $(seq "$(nproc)"); do
        sh -c 'while :; do :; done' &
        hogs="$hogs $!"
    done
    fast
    code=$?
    # shellcheck disable=SC2086 # several numbers
    kill $hogs
    return $code
}

copied() { git clone --quiet "$here" "$1" && (cd "$1" && make --no-print-directory setup); }

blanks() {
    copied "$work/a folder with blanks" && mkdir "$work/temporary files" &&
        (cd "$work/a folder with blanks" && TMPDIR="$work/temporary files" fast)
}

# Needs a Python that every user may run; the first on the PATH of the system is taken. Its packages are not downloaded
# again: the user gets what uv keeps of them here.
other_user() {
    [ "$(id -u)" -eq 0 ] || { fast; return; }
    kept=$(.venv/bin/uv cache dir) || return 1
    own=$(mktemp -d) && mkdir "$own/tmp" && git clone --quiet "$here" "$own/clone" || return 1
    [ ! -d "$kept" ] || cp -R "$kept" "$own/cache" || return 1
    chown -R nobody "$own" || return 1
    # A temporary folder of its own: the lock files of the server that the tests start belong to who came first.
    setpriv --reuid nobody --regid "$(id -g nobody)" --clear-groups env HOME="$own" TMPDIR="$own/tmp" \
        PATH=/usr/local/bin:/usr/bin:/bin UV_CACHE_DIR="$own/cache" \
        sh -c 'cd "$0" && make --no-print-directory test-fast PYTHON=/usr/bin/python3' "$own/clone"
    code=$?
    rm -rf "$own"
    return $code
}

for name in ${*:-terminal_less input_closed background one_worker four_workers busy_cores blanks other_user}; do
    begun=$(date +%s)
    if "$name" >"$work/log" 2>&1; then
        verdict=ok
    else
        verdict=FAILED
        failed="$failed $name"
        tail -40 "$work/log"
    fi
    printf '%-16s %-8s %4d s  %s\n' "$name" "$verdict" $(($(date +%s) - begun)) "$(grep -Eo '[0-9]+ passed.*s' "$work/log")"
done
[ -z "$failed" ]
