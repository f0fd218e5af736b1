#!/usr/bin/env bash
# Do the checks notice what they are there for? In: names of bugs (all of them without), see the table below. Out: a line for
# each, one JSON line last; exit code 1 if one goes unnoticed.
#
# Bugs of the protocol are planted by the simulation and by the model check in their own tests, which pass when the bug is
# noticed. Bugs at the edges are in the code behind the feature `seeded-bugs`: a test that passes without the bug, and has to
# fail with it.
set -euo pipefail
cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."

sim=(cargo test --quiet --locked -p upriver-sim --test schedules --)
model=(cargo test --quiet --locked -p upriver-model-check --test rules --)
declare -A noticed=(
    [cursor-before-journal]="${sim[*]} a_cursor_that_moves_before_its_entries_is_caught"
    [ack-before-push]="${sim[*]} a_settlement_before_the_push_is_caught"
    [uncertain-push-is-success]="${sim[*]} a_push_of_unknown_outcome_that_counts_as_landed_is_caught"
    [rebuild-without-proof]="${sim[*]} a_skipped_proof_is_caught"
    [expired-cursor-ignored]="${sim[*]} an_expired_cursor_that_is_ignored_is_caught"
    [queue-full-drop]="${sim[*]} a_frame_that_is_dropped_when_the_journal_is_full_is_caught"
    [no-compare-and-swap]="${sim[*]} a_push_without_compare_and_swap_is_caught"
    [stream-not-opened]="${sim[*]} a_stream_that_is_not_opened_is_caught"
    [successor-forgets]="${sim[*]} a_successor_that_forgets_is_caught"
    [removed-rules]="${model[*]} each_removed_rule_is_noticed"
    [unconditional-lease-patch]="cargo test --quiet --locked -p upriver-kube-io --test it -- the_guarded_election_has_exactly_one_winner_where_the_bare_library_has_two"
)
declare -A breaks=(
    [unpack-ok]="cargo test --quiet --locked -p upriver-git-io --features upriver-git-io/seeded-bugs --test it -- a_race_after_the_advertisement_is_lost_although_the_remote_says_unpack_ok"
    [ping-recycle]="cargo test --quiet --locked -p upriver-redis-io --features upriver-redis-io/seeded-bugs --test it -- a_master_that_was_demoted_and_keeps_its_sockets_is_noticed"
    [wall-clock]="cargo test --quiet --locked -p upriver-kube-io --features upriver-kube-io/seeded-bugs --test it -- a_session_lives_whatever_its_clock_says"
)

log=$(mktemp)
trap 'rm -f -- "$log"' EXIT

# Did just some tests run, and did all of them pass?
passes() {
    eval "$1" >"$log" 2>&1 && grep -q '^test result: ok. [1-9]' "$log"
}

fails() {
    ! eval "$1" >"$log" 2>&1 && grep -q '^test result: FAILED' "$log"
}

names=("$@")
((${#names[@]} > 0)) || mapfile -t names < <(printf '%s\n' "${!noticed[@]}" "${!breaks[@]}" | sort)
unnoticed=0
for name in "${names[@]}"; do
    if [[ -n ${noticed[$name]:-} ]]; then
        verdict=unnoticed
        ! passes "${noticed[$name]}" || verdict=noticed
    elif [[ -n ${breaks[$name]:-} ]]; then
        verdict=unnoticed
        if ! passes "${breaks[$name]}"; then
            verdict="the test fails without the bug"
        elif fails "UPRIVER_SEEDED_BUG=$name ${breaks[$name]}"; then
            verdict=noticed
        fi
    else
        printf 'no bug is called %s\n' "$name" >&2
        exit 2
    fi
    printf '%-28s %s\n' "$name" "$verdict"
    if [[ $verdict != noticed ]]; then
        unnoticed=$((unnoticed + 1))
        tail -n 40 -- "$log" >&2
    fi
done
printf '{"lane":"bugs","planted":%d,"unnoticed":%d}\n' "${#names[@]}" "$unnoticed"
((unnoticed == 0))
