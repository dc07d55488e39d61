#!/usr/bin/env bash
# The protocol of docs/units.md as models that SPIN explores whole: with all rules nothing is lost, and each state of
# each model is reached; without one rule there is a trace that loses something, or it is no rule. The gate has a small
# form of each model with all rules; by night there are all, each rule is taken away, and there are more mounts, which stop,
# die and lose answers more often.
#
# run.sh [TEST]: all, or one. Of a trace that nobody expected its end is printed.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
page=$here/../../docs/units.md
only=${1:-}
work=$(mktemp -d "${TMPDIR:-/tmp}/runfs-protocol.XXXXXX")
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
removed=() # each rule that was taken away in a test which must find a trace

# The rules that a model knows, one a line.
rules_of() {
    grep -oh 'RULE_[A-Z_]*' "$here/$1.pml" "$here/world.inc" | sort -u | sed 's/^RULE_//'
}

# explore OPTIMISE MODEL "RULE..." DEFINE...: the model without these rules, all of it; what pan says is in $work/out.
explore() {
    local optimise=$1 model=$2 without=" $3 " rule
    shift 3
    defines=("$@") # the trace needs them, too
    while read -r rule; do
        [[ $without == *" $rule "* ]] || defines+=("-DRULE_$rule")
    done < <(rules_of "$model")
    rm -f "$work"/*
    (
        cd "$work"
        spin -a "${defines[@]}" "$here/$model.pml"
        gcc "$optimise" -w -DSAFETY ${RUNFS_NIGHTLY:+-DCOLLAPSE} -DVECTORSZ=2048 -DMEMLIM=1800 -o pan pan.c
        # Waits that never end are the judge's to find: some may, as the other side has died.
        ./pan -E -w20 -m200000
    ) >"$work/out" 2>&1 || return 1
    # What was cut short says nothing.
    ! grep -E 'truncated|max search depth too small|memory limit|out of memory|^error' "$work/out"
}

errors() {
    sed -n 's/.* errors: \([0-9]*\)$/\1/p' "$work/out"
}

states() {
    sed -n 's/^ *\([0-9]*\) states, stored$/\1/p' "$work/out"
}

# Steps that no order of events comes to: a model that does nothing loses nothing.
unreached() {
    grep -E 'state [0-9]+, "' "$work/out" | grep -v '"-end-"'
}

# The last steps of a trace, without those of loops that only count.
trace() {
    (
        cd "$work"
        spin -t -p "${defines[@]}" -k ./*.trail "$here/$1.pml" 2>&1
    ) | grep '^ *[0-9]*:.*proc' |
        grep -vE 'goto|\[else\]|due\[|\[i = |\[\(1\)\]|i<|losses = |lates = |deaths = |:init:' |
        sed "s|$here/||; s/(state [0-9]*)//; s/^ *[0-9]*:[[:space:]]*proc */    /" | tail -n "${TRACE:-40}"
}

ok() {
    passed=$((passed + 1))
    echo "ok   $1"
}

fail() {
    failed=$((failed + 1))
    echo "FAIL $1: $2"
    echo "REPEAT: ./check.sh --job protocol - $1"
}

# The gate explores each model once, in a small form. What does not change between two changes of the models is the night's.
gate=' publish nodes-prompt takeover-prompt lock again-prompt edit barrier rules '

wanted() {
    if [ -n "$only" ]; then
        [ "$only" = "$1" ]
    else
        [ -n "${RUNFS_NIGHTLY:-}" ] || [[ $gate == *" $1 "* ]]
    fi
}

# holds TEST MODEL "RULE..." DEFINE...: nothing is lost, even without these rules. Where none is missing, and no
# DEFINE forbids something, each step is reached.
holds() {
    local test=$1 model=$2 without=$3
    wanted "$test" || return 0
    shift 2
    if ! explore -O1 "$model" "$@"; then
        fail "$test" "it was not explored"
        tail -n 20 "$work/out"
    elif [ "$(errors)" != 0 ]; then
        fail "$test" "$(grep -m 1 '^pan:1' "$work/out")"
        trace "$model"
    elif [ -z "$without" ] && [[ $* != *=0* ]] && unreached >"$work/never"; then
        fail "$test" "no order of events comes to these steps"
        cat "$work/never"
    else
        ok "$test: $(states) states"
    fi
}

# loses TEST MODEL "RULE..." DEFINE...: without these rules something is lost.
loses() {
    local test=$1 model=$2
    # shellcheck disable=SC2206 # words
    removed+=($3)
    wanted "$test" || return 0
    shift 2
    if ! explore -O0 "$model" "$@"; then
        fail "$test" "it was not explored"
        tail -n 20 "$work/out"
    elif [ "$(errors)" = 0 ]; then
        fail "$test" "nothing is lost without it: the model is too weak, or it is no rule"
    else
        ok "$test: lost after $(states) states"
        [ -z "${TRACE:-}" ] || trace "$model"
    fi
}

# without MODEL RULE...: each of them is needed, by itself.
without() {
    local model=$1 rule
    shift
    for rule in "$@"; do
        loses "$model-without-$rule" "$model" "$rule"
    done
}

# One name for the page, the models and, some day, the code.
same_rules() {
    local rule wrong=''
    wanted rules || return 0
    while read -r rule; do
        [[ " ${removed[*]} " == *" $rule "* ]] || wrong+="no test takes away $rule"$'\n'
        grep -qF "| \`$rule\` |" "$page" || wrong+="docs/units.md has no row for $rule"$'\n'
    done < <(sed -n 's/^#if.*\bRULE_\([A-Z_]*\).*/\1/p' "$here"/*.pml "$here/world.inc" | sort -u)
    while read -r rule; do
        grep -q "RULE_$rule\b" "$here"/*.pml "$here/world.inc" || wrong+="no model knows $rule"$'\n'
    done < <(sed -n 's/^| .\([A-Z][A-Z_]*\). |.*/\1/p' "$page")
    if [ -n "$wrong" ]; then
        fail rules "the page, the models and the tests differ"
        printf '%s' "$wrong"
    else
        ok "rules: the page has those of the models"
    fi
}

if ! command -v spin >/dev/null; then
    echo "SKIP the models of the protocol: no spin here (scripts/deps.sh check)"
    echo "protocol: 0 passed, 0 failed, 1 skipped"
    exit 0
fi

# PROMPT: a listing shows what there is, and then the waits for listings are not needed.
holds publish publish ''
holds publish-prompt publish OPEN_LISTED_BEFORE_COMMIT -DPROMPT
without publish OPEN_BEFORE_COMMIT OPEN_LISTED_BEFORE_COMMIT TAIL_LAST SEAL_BEFORE_OPEN_GOES SEAL_NAMES_TAIL NOTES_AFTER_NAMES
loses publish-prompt-without-FENCE publish 'FENCE OPEN_LISTED_BEFORE_COMMIT' -DPROMPT

holds nodes nodes ''
holds nodes-prompt nodes LIST_AGAIN_WHEN_LATE -DPROMPT
holds nodes-prompt-rewritten nodes 'LIST_AGAIN_WHEN_LATE OPEN_STAYS_BESIDE_LAST' -DPROMPT # in one listing, all at once
holds nodes-3 nodes '' -DMOUNTS=3 -DDEATHS=0 -DLATES=0
without nodes OPEN_BEFORE_CLOSE_ANSWERED OPEN_STAYS_BESIDE_LAST LAST_LOWEST_ID LAST_OF_PROGRAM LIST_AGAIN_WHEN_LATE FENCE
# With expect=N no close need wait for a note, and no program needs a barrier.
holds nodes-expect nodes '' -DEXPECT
holds nodes-expect-early-close nodes OPEN_BEFORE_CLOSE_ANSWERED -DEXPECT
loses nodes-expect-without-EXPECT_COUNTS nodes EXPECT_COUNTS -DEXPECT

holds takeover takeover ''
holds takeover-prompt takeover '' -DPROMPT
holds takeover-3 takeover '' -DMOUNTS=3 -DLOSSES=1 -DDEATHS=0
holds takeover-3-lost takeover '' -DMOUNTS=3 -DLOSSES=2 -DDEATHS=0 -DLATES=0
without takeover LEASE_ENDED_BEFORE_TAKE LOST_BEFORE_ENDED LATE_BEFORE_ENDED TAKE_THEN_LOOK NOTES_READ_AFTER_LOSS \
    FOREIGN_TAIL_FIRST FOREIGN_REMOVED OLD_NOTE_BEFORE_TAKE SEALED_IS_NOT_TAKEN FENCE
# What no rule helps against, see "What the protocol can't keep" of the page: that it happens is no secret here.
loses takeover-stopped-inside takeover '' -DSTOP_INSIDE
loses takeover-3-without-FENCE takeover FENCE -DMOUNTS=3 -DLOSSES=1 -DDEATHS=0
loses takeover-3-without-ONE_TAKER takeover ONE_TAKER -DMOUNTS=3 -DLOSSES=1 -DDEATHS=0 -DLATES=0

holds lock lock ''
holds lock-prompt lock 'WAIT_AFTER_GONE LIST_AGAIN_WHEN_LATE' -DPROMPT
holds lock-3 lock '' -DMOUNTS=3 -DDEATHS=0 -DLOSSES=1
holds lock-finisher lock '' -DFINISHER -DLOSSES=1
without lock GONE_THEN_LIST LOCK_THEN_LIST WAIT_AFTER_GONE LIST_AGAIN_WHEN_LATE GONE_NEVER_LAPSES LOCK_AGAIN_AFTER_LOSS \
    LOST_BEFORE_ENDED TAIL_REMOVED_FIRST
loses lock-finisher-without-FINISHER_LISTS_LOCKS lock FINISHER_LISTS_LOCKS -DFINISHER -DLOSSES=1
loses lock-prompt-without-FENCE lock 'FENCE WAIT_AFTER_GONE LIST_AGAIN_WHEN_LATE' -DPROMPT

holds again again ''
holds again-prompt again '' -DPROMPT
without again GONE_BLOCKS_COMMITS GONE_GOES_LAST ROW_NAMES_VERSION WAIT_AFTER_GONE LEASE_ENDED_BEFORE_TAKE TAKE_THEN_LOOK \
    NOTES_READ_AFTER_LOSS LOST_BEFORE_ENDED LATE_BEFORE_ENDED FENCE
loses again-stopped-inside again '' -DSTOP_INSIDE

holds edit edit ''
holds edit-prompt edit WAIT_AGAIN_WHEN_LATE -DPROMPT
without edit EDIT_LOOKS_FOR_GONE EDIT_LOOKS_FOR_TAIL REMOVES_WHAT_STANDS WAIT_AFTER_GONE WAIT_AGAIN_WHEN_LATE
loses edit-prompt-without-WAIT_AFTER_GONE edit 'WAIT_AFTER_GONE WAIT_AGAIN_WHEN_LATE' -DPROMPT

holds barrier barrier ''
holds barrier-prompt barrier LIST_AGAIN_WHEN_LATE -DPROMPT
without barrier BARRIER_READS_NOTES NEWEST_WHOLE_WAITS OPEN_BEFORE_CLOSE_ANSWERED LIST_AGAIN_WHEN_LATE FENCE

if [ -n "${RUNFS_NIGHTLY:-}" ]; then
    holds night-lock lock '' -DMOUNTS=3 -DLOSSES=1
    holds night-takeover takeover '' -DLOSSES=3 -DLATES=2
    holds night-takeover-3 takeover '' -DMOUNTS=3 -DLOSSES=1
    holds night-nodes nodes LIST_AGAIN_WHEN_LATE -DMOUNTS=3 -DPROMPT
    holds night-again again '' -DLOSSES=3
    holds night-edit edit '' -DLOSSES=2 -DLATES=3
    holds night-barrier barrier '' -DLOSSES=3 -DLATES=2
fi
same_rules
echo "protocol: $passed passed, $failed failed, 0 skipped"
[ "$failed" -eq 0 ]
