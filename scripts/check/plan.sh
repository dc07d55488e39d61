# shellcheck shell=bash
# What there is to run: the table of jobs, and the choice from it. A job is "STAGE PRESET". Sourced
# by check.sh, which sets `top`, `night` (empty in the gate), `stages` and `only` (presets).
# shellcheck disable=SC2154

table=$top/scripts/check/jobs
jobs=() # all, in the order of the table
declare -A warm_of=() cold_of=() needs_of=() # by job: seconds, and the words of the last column
declare -A runs=() # the jobs that run in this mode

# Reads the table. A job that runs in the other mode only has that one's budget. The table's
# seconds are those of 2 processors.
read_table() {
    local stage preset gate cold by_night needs warm times=1
    [ "$(nproc)" -gt 1 ] || times=2
    while read -r stage preset gate cold by_night needs; do
        case $stage in '' | '#'*) continue ;; esac
        warm=${night:+$by_night}
        warm=${warm:-$gate}
        if [ "$warm" = - ]; then
            warm=$by_night
        else
            runs["$stage $preset"]=1
        fi
        if [ -n "$night" ] || [ "$cold" = - ]; then cold=$warm; fi
        jobs+=("$stage $preset")
        # shellcheck disable=SC2034 # result.sh's
        warm_of["$stage $preset"]=$((warm * times))
        cold_of["$stage $preset"]=$((cold * times))
        needs_of["$stage $preset"]=$needs
    done <"$table"
}

# The folders of tests/ that bring their own runner.
runners() {
    local script
    for script in tests/*/run.sh; do
        [ ! -x "$script" ] || basename "$(dirname "$script")"
    done
}

# All stages, in the order of the table; what is done for others is none.
all_stages() {
    printf '%s\n' "${jobs[@]}" | awk '$1 !~ /^(all|prepare|build)$/ && !seen[$1]++ { print $1 }'
}

# A runner without a line would never run, and a line without a runner would fail late.
check_table() {
    local stage
    for stage in $(runners); do
        all_stages | grep -qx "$stage" || die "tests/$stage/run.sh has no line in ${table#"$top"/}"
    done
    for stage in $(all_stages); do
        case $stage in lint | unit | contract | fuzz) continue ;; esac
        [ -x "tests/$stage/run.sh" ] || die "${table#"$top"/} has a stage $stage, and there is no tests/$stage/run.sh"
    done
}

# job_name JOB: what its row, its log and its reports are called.
job_name() {
    local name=${1% -}
    echo "${name/ /-}"
}

# The jobs that a job waits for, one a line.
needs() {
    local word stage=${1% *} preset=${1#* }
    case $stage in
    prepare | build | lint | check | fuzz) ;;
    *) [ "$preset" = - ] || echo "build $preset" ;;
    esac
    for word in ${needs_of[$1]}; do
        [[ $word == +* ]] || echo "prepare $word"
    done
}

# What only one job at a time may have; nothing for most.
token() {
    local word
    for word in ${needs_of[$1]}; do
        [[ $word != +* ]] || echo "$word"
    done
}

# The chosen jobs. Who names a preset gets what runs by night, too.
chosen() {
    local job
    for job in "${jobs[@]}"; do
        [[ " ${stages[*]} " == *" ${job% *} "* ]] || continue
        if [ ${#only[@]} -gt 0 ]; then
            [[ " ${only[*]} " == *" ${job#* } "* ]] || continue
        elif [ -z "${runs[$job]:-}" ]; then
            continue
        fi
        echo "$job"
    done
}

# The chosen jobs and those that they wait for, in the order in which they begin: what others wait
# for as the table has it, then the longest first.
plan() {
    local work wanted job
    work=$(chosen)
    [ -n "$work" ] || return 0
    wanted=$(while read -r job; do needs "$job"; done <<<"$work")
    wanted+=$'\n'$(while read -r job; do [ -z "$job" ] || needs "$job"; done <<<"$wanted")
    for job in "${jobs[@]}"; do
        ! grep -qxF -- "$job" <<<"$wanted" || echo "$job"
    done
    while read -r job; do
        echo "${cold_of[$job]} $job"
    done <<<"$work" | sort -k1,1nr -k2 | cut -d ' ' -f 2-
}
