#!/bin/sh
# Prepares .venv: the pinned packages of requirements/dev.txt, their hashes checked, this project, editable, and those of
# requirements/npm.json. Usage: scripts/setup.sh [PYTHON]. Needs a Python >= 3.11, and what the tests of sandboxes run: on
# Debian, as root, it installs that; elsewhere it says what is missing.
set -eu
cd "$(dirname "$0")/.."
pins=requirements/dev.txt

fail() {
    printf 'setup: %s\n' "$*" >&2
    exit 1
}

new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    for candidate in ${1:-python3 python3.14 python3.13 python3.12 python3.11 python}; do
        if new_enough "$candidate"; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    fail "no Python >= 3.11 found (tried: ${1:-python3, python3.14 to python3.11, python}). Install one, or name it:" \
        "make setup PYTHON=/path/to/python3.11"
}

# Some systems ship Python without ensurepip; their own pip can fill the environment then.
make_venv() {
    if "$1" -c 'import ensurepip' 2>/dev/null; then
        "$1" -m venv --clear .venv
    elif "$1" -m pip --version >/dev/null 2>&1; then
        "$1" -m venv --clear --without-pip .venv
    else
        fail "$1 can make no environment with pip in it. On Debian or Ubuntu: apt-get install python3-venv"
    fi
}

# uv's own pin, with its hashes, is the block of its name in the list of pins.
install_uv() {
    if .venv/bin/python -c 'import pip' 2>/dev/null; then
        set -- .venv/bin/python -m pip
    else
        set -- "$1" -m pip --python .venv/bin/python
    fi
    awk '/^[^ ]/ { wanted = /^uv==/ } wanted' "$pins" |
        "$@" install --quiet --disable-pip-version-check --require-hashes -r /dev/stdin
}

[ ! -L .venv ] || fail ".venv is a link to $(readlink .venv). Other checkouts use that environment, and setup would install" \
    "this one in it in their place. Remove the link (rm .venv), and setup makes an environment of this checkout."

if ! new_enough .venv/bin/python || ! .venv/bin/uv --version >/dev/null 2>&1; then
    python=$(find_python "${1:-}")
    printf 'setup: making .venv with %s\n' "$("$python" --version)"
    make_venv "$python"
    install_uv "$python"
fi

# What the tests of sandboxes and of pages need: programs, and the Debian packages that bring them.
missing=
for each in chromium:chromium podman:podman bwrap:bubblewrap runc:runc busybox:busybox-static; do
    PATH="$PATH:/usr/sbin:/sbin" command -v "${each%%:*}" >/dev/null 2>&1 || missing="$missing ${each##*:}"
done
if [ -n "$missing" ]; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        printf 'setup: installing%s\n' "$missing"
        # shellcheck disable=SC2086 # a list of names
        apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $missing ||
            printf 'setup: the tests of sandboxes and pages will fail without%s\n' "$missing" >&2
    else
        printf 'setup: the tests of sandboxes and pages need%s; on Debian or Ubuntu: apt-get install%s\n' "$missing" "$missing" >&2
    fi
fi

printf 'setup: installing %s\n' "$pins"
export VIRTUAL_ENV="$PWD/.venv"
.venv/bin/uv pip sync --quiet --require-hashes --compile-bytecode "$pins"
# Without its dependencies: those that its suites need are among the pins.
.venv/bin/uv pip install --quiet --no-deps --require-hashes --compile-bytecode -r requirements/gold.txt
# The build backend is among the pins, so nothing else is fetched to build the project.
.venv/bin/uv pip install --quiet --no-deps --no-build-isolation --editable .

# What the tests of MCP run, and what looks for faults in pages.
sh scripts/npm.sh npm
printf 'setup: done\n'
