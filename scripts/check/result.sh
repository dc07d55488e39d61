# shellcheck shell=bash
# What came out of a job: its row of the table, and the verdict over all rows. Sourced by check.sh.
# shellcheck disable=SC2154 # top, logs, night: set there; warm_of, cold_of: plan.sh's

# ---- the log --------------------------------------------------------------------------------

# Sums a log into "passed failed skipped". A runner ends with "name: N passed, N failed, N
# skipped"; in ctest's output ("7: " before what test 7 says) each executable has such a line or
# libcheck's own, and one that says how it ended.
count() {
    awk '
    { key = match($0, /^[0-9]+: /) ? substr($0, 1, RLENGTH - 2) : "" }
    match($0, /[0-9]+ passed, [0-9]+ failed, [0-9]+ skipped$/) {
        said[key] = substr($0, RSTART)
    }
    match($0, /: Checks: [0-9]+, Failures: [0-9]+, Errors: [0-9]+$/) {
        split(substr($0, RSTART + 10), n, /[^0-9]+/)
        good[key] += n[1] - n[2] - n[3]; bad[key] += n[2] + n[3]
    }
    match($0, /Test +#[0-9]+: .*(Passed|\*\*\*)/) {
        split(substr($0, RSTART), n, /[^0-9]+/); ended[n[2]] = /\*\*\*/ ? "badly" : "well"
    }
    END {
        for (key in said) {
            split(said[key], n, /[^0-9]+/); good[key] = n[1]; bad[key] = n[2]; left[key] = n[3]
        }
        for (key in ended) if (ended[key] == "badly" && !bad[key]) bad[key] = 1
        for (key in good) passed += good[key]
        for (key in bad) failed += bad[key]
        for (key in left) skipped += left[key]
        print passed + 0, failed + 0, skipped + 0
    }' "$1"
}

# How many processes wrote a sanitizer's report during this job; they are added to its log.
reports() {
    local file n=0
    for file in "$logs/reports/$1".*; do
        [ -s "$file" ] || continue
        n=$((n + 1))
        sed 's/^/report: /' "$file" >>"$2"
    done
    echo "$n"
}

# The lines of a log that say what failed.
failures() {
    grep -aE '^(FAIL|not ok|DIED)|: FAILED: |:[FE]:|^report: SUMMARY' "$1" || true
}

# repeats JOB LOG: for each failure the command that repeats just it. A runner says it itself, of
# ctest's programs it is made here: ctest says "3/68 Test #7: unit/test_x ...***Failed", and
# libcheck "7: FILE:LINE:F:CASE:FUNCTION:...". By night the asan build and the seeds are others.
repeats() {
    local found
    found=$({
        sed -n 's/^\([0-9]*: \)\?REPEAT: //p' "$2"
        awk -v job="$1" '
        match($0, /^[0-9]+: .*:[FE]:[^:]*:/) {
            key = $1; sub(/.*:[FE]:/, ""); sub(/:.*/, ""); cases[key] = cases[key] " " $0
        }
        match($0, /Test +#[0-9]+: [a-z]+\/[a-z_0-9]+ .*\*\*\*/) {
            program = substr($0, RSTART); sub(/^Test +#/, "", program)
            number = program + 0; sub(/^[^\/]*\//, "", program); sub(/ .*/, "", program)
            count = split(cases[number ":"], which, " ")
            if (!count) print "./check.sh --job " job " " program
            for (i = 1; i <= count; i++) print "CK_RUN_CASE=" which[i] " ./check.sh --job " job " " program
        }' "$2"
    } | awk '!seen[$0]++' | head -n 20)
    echo "${found:-./check.sh --job $1}" |
        sed "${night:+s|\./check.sh|RUNFS_SEED=$RUNFS_SEED ./check.sh --nightly|}"
}

# ---- time -----------------------------------------------------------------------------------

own_load=20 # percent of the processors: what others take beyond that excuses who is late

# others BEFORE AFTER: the percentage of the processors that others had, a hypervisor's guests
# included, between two lines of load.py: "TIME BUSY OWN"; "?" when there are none.
others() {
    awk -v before="$1" -v after="$2" -v processors="$(nproc)" 'BEGIN {
        if (split(before, b, " ") != 3 || split(after, a, " ") != 3 || a[1] <= b[1]) { print "?"; exit }
        share = 100 * (a[2] - b[2] - (a[3] - b[3])) / (processors * (a[1] - b[1]))
        print int(share < 0 ? 0 : (share > 100 ? 100 : share))
    }'
}

# made_anew LOG: "N of M WHAT", by the last line "COLD: ..." of a job: so many of its results no cache had.
made_anew() {
    sed -nE 's/^COLD: ([0-9]+ of [0-9]+( .*)?)$/\1/p' "$1" | tail -n 1
}

# budget WARM COLD "N of M ...": the seconds between the two, as far up as N is of M; nothing is warm.
budget() {
    local made of
    read -r made _ of _ <<<"${3:-0 of 0}"
    if [ "$made" -gt "$of" ]; then made=$of; fi
    echo $(($1 + ($2 - $1) * made / (of ? of : 1)))
}

# is_late SECONDS BUDGET OTHERS: beyond twice the budget, and of its own doing. The same jobs took 1,269 s
# on one machine of the CI and 2,174 s on another: less than twice may be the machine's. What takes seconds
# only may take some more.
is_late() {
    [ "$1" -gt $(($2 * 2)) ] && [ "$1" -gt $(($2 + 20)) ] && [ "$3" != '?' ] && [ "$3" -lt "$own_load" ]
}

# ---- a row ----------------------------------------------------------------------------------

# Runs a job, adds its counts to the totals and prints its row; the result is whether it went well.
row() {
    local file result=0
    file=$logs/rows/$(job_name "$1")
    run_counted "$1" >"$file" 2>&1 || result=$?
    cat "$file"
    return "$result"
}

# The job as a process of its own; who ends us ends it.
run_limited() {
    local process limit=2400
    [ -z "$night" ] || limit=6000
    timeout --kill-after=30 "${JOB_TIMEOUT:-$limit}" ./check.sh ${night:+--nightly} --run "$@" </dev/null &
    process=$!
    trap 'kill "$process" 2>/dev/null' TERM
    wait "$process"
}

run_counted() {
    local job=$1 name log started before result=0 p f s bad found seconds load
    name=$(job_name "$job") before=$(load_now) started=$SECONDS
    log=$logs/$name.log
    rm -f "$logs/reports/$name".*
    # shellcheck disable=SC2086 # a stage and a preset
    run_limited $job >"$log" 2>&1 || result=$?
    seconds=$((SECONDS - started)) load=$(others "$before" "$(load_now)")
    found=$(reports "$name" "$log")
    read -r p f s < <(count "$log")
    f=$((f + found))
    case $job in
    prepare*) prepare_counts ;;
    build*) build_counts ;;
    *) [ $((p + f + s)) -gt 0 ] || f=1 ;; # a job that counted nothing tested nothing
    esac
    # What can't be prepared is a skip; what else ends badly has failed, whatever it skipped.
    [ "$result" -eq 0 ] || [ "$f" -gt 0 ] || [[ $job == prepare* ]] || f=1
    bad=$f
    print_row
    [ "$s" -eq 0 ] || grep -aE '(^|[ :])SKIP\b' "$log" | sort -u | head -n 20 | sed 's/^/    /' || true
    [ "$f" -eq 0 ] || tell_failure
    [ "$bad" -eq 0 ] # what was built late is tested all the same
}

# Counts of jobs that run no test. Variables are run_counted's, here and below.
prepare_counts() {
    p=0 f=0 s=0
    if [ "$result" -eq 0 ]; then
        p=1
    else
        s=1
        printf 'SKIP what needs %s: %s\n' "${job#* }" "$(tail -n 1 "$log")" >>"$log"
    fi
}

build_counts() {
    [ "$result" -ne 0 ] || p=1
    if grep -q '^SKIP' "$log"; then s=1; fi
}

# Its time beside its budget; in CI a job that is late has failed. What is prepared waits for
# networks: that is nobody's load, and not judged.
print_row() {
    local seconds_of anew='' said=
    [ "${warm_of[$job]}" = "${cold_of[$job]}" ] || anew=$(made_anew "$log")
    seconds_of=$(budget "${warm_of[$job]}" "${cold_of[$job]}" "$anew")
    [ -z "$anew" ] || [ "${anew%% *}" = 0 ] || said=" (cold: $anew)"
    [ "$load" = '?' ] || [ "$load" -lt 10 ] || said+=", others took $load % of the processors"
    if [[ $job != prepare* ]] && is_late "$seconds" "$seconds_of" "$load"; then
        said+=", LATE"
        if [ "${CI:-}" = true ]; then
            f=$((f + 1))
            echo "FAIL $name took $seconds s, its budget is $seconds_of s${anew:+ with $anew made anew}, and others took $load % of the processors" >>"$log"
        fi
    fi
    echo "$p $f $s" >>"$logs/totals"
    printf '%-20s%6d passed %4d failed %4d skipped %6d s of %d%s\n' \
        "$name" "$p" "$f" "$s" "$seconds" "$seconds_of" "$said" | tee -a "$logs/table"
}

tell_failure() {
    printf -- '---- %s: exit status %d, failures, and its end:\n' "${log#"$top"/}" "$result"
    failures "$log" | cut -c 1-300 | head -n 30
    failures "$log" | cut -c 1-600 | head -n 8 | sed "s/^/$name: /" >>"$logs/failures"
    repeats "$job" "$log" >>"$logs/repeats"
    printf -- '----\n'
    tail -n "${LOG_TAIL:-60}" "$log"
    printf -- '----\n'
}

# ---- the verdict ----------------------------------------------------------------------------

# verdict JOBS: so many had to come to an end. What a CI keeps of a long output is its end.
verdict() {
    local result=0 ended passed failed skipped
    read -r ended < <(wc -l <"$logs/totals")
    read -r passed failed skipped < <(awk '{ p += $1; f += $2; s += $3 } END { print p + 0, f + 0, s + 0 }' \
        "$logs/totals")
    printf '\n'
    sort "$logs/table"
    printf 'all %d s of %d, %d where nothing is cached%s\n\n' "$SECONDS" "${warm_of[all -]}" "${cold_of[all -]}" \
        "${night:+, RUNFS_SEED=$RUNFS_SEED}"
    if [ "$failed" -gt 0 ]; then
        head -n 20 "$logs/failures"
        printf 'What repeats it:\n'
        head -n 20 "$logs/repeats" | sed 's/^/    /'
        echo "FAILED: see the logs named above"
        result=1
    elif [ "$ended" -ne "$1" ]; then
        echo "FAILED: $ended of $1 jobs came to an end"
        result=1
    elif [ "$skipped" -gt 0 ] && [ "${CI:-}" = true ]; then
        echo "FAILED: in CI nothing may be skipped"
        result=1
    elif [ "$skipped" -gt 0 ]; then
        echo "PASSED, apart from what was skipped above"
    else
        echo "PASSED"
    fi
    echo "$passed passed, $failed failed, $skipped skipped"
    return "$result"
}
