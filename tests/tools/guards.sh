#!/usr/bin/env bash
# Does the tree keep the rules that no compiler checks? In: the work tree. Out: a line for each breach, and exit code 1.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

breaches=0
breach() {
    printf 'guard: %s\n' "$*" >&2
    breaches=$((breaches + 1))
}

# kube-leader-election accepts any newer k8s-openapi; a second copy compiles, and then no type of one fits the other.
copies=$(grep -c '^name = "k8s-openapi"$' Cargo.lock || true)
((copies == 1)) || breach "Cargo.lock holds $copies copies of k8s-openapi, it must be 1: undo the last \`cargo update\`"

# Paths of one machine. They are put together here, so that this file does not name them itself.
if git rev-parse --is-inside-work-tree >/dev/null 2>&1; then
    pattern="(^|[^A-Za-z0-9_.:/-])/(home|Users|roo""t|wor""k)/[A-Za-z0-9_.-]+"
    if found=$(git grep -nIE "$pattern"); then
        breach "absolute paths of a machine:"$'\n'"$found"
    fi
    # A folder directly below / could be a word of any text.
    if [[ $PWD == /*/* ]] && found=$(git grep -nIF "$PWD"); then
        breach "the path of this work tree:"$'\n'"$found"
    fi
fi

((breaches == 0))
