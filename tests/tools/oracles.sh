#!/usr/bin/env bash
# Where are the programs that say what others make of our YAML and of message templates? In: the folder oracle/,
# UPRIVER_CACHE_DIR or XDG_CACHE_HOME. Out: on stdout a folder with `oracle`, a Go program, and `venv/bin/python`, which has PyYAML.
# Builds them when they are missing; a second run waits for the first one instead of building again. With --check it
# builds nothing, and its exit code says whether they are there.
set -euo pipefail

here=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source-path=SCRIPTDIR source=go.sh
source "$here/go.sh"

say() { printf '%s\n' "$*" >&2; }
die() { say "tests/tools/oracles.sh: $*"; exit 1; }

check_only=no
if [[ ${1:-} == --check ]]; then
    check_only=yes
    exec >/dev/null
fi

# PyYAML has a part in C, which fits one version of Python.
python_tag=$(python3 -c 'import sys; print(sys.implementation.cache_tag)' 2>/dev/null) || python_tag=none
hash=$(cat "$here/oracle/"{go.mod,go.sum,*.go,requirements.txt} | sha256sum | cut -c1-12)
oracles=${UPRIVER_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/upriver}/oracles
target=$oracles/$python_tag-$hash

present() { [[ -x $target/oracle && -x $target/venv/bin/python ]]; }

if present; then
    printf '%s\n' "$target"
    exit 0
fi

if [[ $check_only == yes ]]; then exit 1; fi

[[ $python_tag != none ]] || die "python3 is missing: run tests/tools/deps.sh --tests"
go=$(find_go) || {
    find_go >/dev/null || true # once more in this shell, for go_found
    die "found $go_found, Go 1.$needed_minor or later is needed (or any since 1.$fetching_minor without GOTOOLCHAIN=local): https://go.dev/dl"
}

mkdir -p "$oracles"
# The lock lives on this descriptor and is released when the script ends, however it ends. The builds do not inherit it.
exec 9>"$oracles/.lock"
if ! flock --nonblock 9; then
    say "another run is building the oracles, waiting for it"
    flock 9
fi
if present; then
    printf '%s\n' "$target"
    exit 0
fi

work=$(mktemp -d "$oracles/.building.XXXXXX")
trap 'rm -rf -- "$work"' EXIT

say "building the oracles of YAML and templates, first time only, about 20 seconds"
"$go" -C "$here/oracle" build -trimpath -o "$work/oracle" . 9>&-
python3 -m venv "$work/venv" 9>&- || die "python3 cannot make a venv: run tests/tools/deps.sh --tests"
# Wheels only: one built from source may lack the part in C.
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: \
    --requirement "$here/oracle/requirements.txt" >&2 9>&-
# The folder is renamed below: this python finds its modules by where it lies, scripts like `pip` would not.
"$work/venv/bin/python" -c 'import yaml; yaml.CSafeLoader' 9>&- || die "this PyYAML lacks the part in C"
chmod 755 "$work"
rm -rf -- "$target"
mv -- "$work" "$target"
say "oracles are in $target"
printf '%s\n' "$target"
