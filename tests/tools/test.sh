#!/usr/bin/env bash
# Is everything green? In: the work tree. Out: the output of every step as it comes, then one JSON line with the number
# of tests, also after a failure. Exit code 0 only if every step succeeded, no test failed, and some ran.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/../.."

workspace=(--locked --workspace --features upriver-operator/failpoints)
log=$(mktemp)

verdict() {
    local code=$? passed failed
    # Colours would stand between the words.
    read -r passed failed < <(sed 's/\x1b\[[0-9;]*m//g' "$log" | awk '
        /^test result: / { passed += $4; failed += $6 }
        END { print passed + 0, failed + 0 }')
    rm -f -- "$log"
    if ((code == 0 && passed == 0)); then
        printf 'no test ran\n' >&2
        code=1
    fi
    if ((code == 0 && failed > 0)); then
        code=1
    fi
    printf '{"lane":"test","passed":%d,"failed":%d,"seconds":%d}\n' "$passed" "$failed" "$SECONDS"
    exit "$code"
}
trap verdict EXIT

step() {
    printf '\n== %s\n' "$1" >&2
    shift
    "$@"
}

step "dependencies" tests/tools/deps.sh --tests
step "guards" tests/tools/guards.sh
step "format" cargo fmt --all --check
step "lints, with crash points" cargo clippy "${workspace[@]}" --all-targets -- -D warnings
step "lints, as released" cargo clippy --locked --workspace --all-targets -- -D warnings
step "programs" cargo build "${workspace[@]}" --bins
step "servers" tests/tools/build.sh
step "oracles" tests/tools/oracles.sh
# All of them, so that one failure does not hide the next. pipefail hands on cargo's exit code.
step "tests" cargo test "${workspace[@]}" --no-fail-fast 2>&1 | tee "$log"
# With this seed the Redis master is killed, then an owner. The lane gives up by itself when something hangs.
step "chaos, two cycles" "${CARGO_TARGET_DIR:-target}/debug/upriver-chaos" --cycles 2 --seed 20
