# shellcheck shell=bash
# Runs jobs side by side: one queue, several lanes, and a job begins when what it waits for is done.
# Sourced by check.sh, whose `run_counted JOB` runs one; see plan.sh for `needs` and `token`.

declare -A state=()     # of each job: waiting, running, over, failed, or dropped as it can't run
declare -A job_of=()    # by the id of its process
declare -A holder=()    # of each token: the job that has it
busy=0                  # lanes; what is prepared mostly waits for a network and takes none

# Whether a job can begin now; it is dropped when what it tests could not be built. What could not
# be prepared is skipped by the jobs that need it, which say so.
may_begin() {
    local job=$1 need word
    local -a before
    mapfile -t before < <(needs "$job")
    for need in "${before[@]}"; do
        case ${state[$need]:-over} in
        waiting | running) return 1 ;;
        failed | dropped)
            if [ "${need% *}" = build ]; then
                state[$job]=dropped
                return 1
            fi
            ;;
        esac
    done
    word=$(token "$job")
    [ -z "$word" ] || [ -z "${holder[$word]:-}" ]
}

begin() {
    local job=$1 word
    word=$(token "$job")
    [ -z "$word" ] || holder[$word]=$job
    state[$job]=running
    [ "${job% *}" = prepare ] || busy=$((busy + 1))
    row "$job" &
    job_of[$!]=$job
}

ended() {
    local job=${job_of[$1]} word
    unset "job_of[$1]"
    [ "${job% *}" = prepare ] || busy=$((busy - 1))
    word=$(token "$job")
    [ -z "$word" ] || holder[$word]=
    if [ "$2" -eq 0 ]; then state[$job]=over; else state[$job]=failed; fi
}

# run_lanes COUNT JOB...: in this order, as far as it can be kept. Sets `state`.
run_lanes() {
    local count=$1 job process result
    shift
    for job in "$@"; do state[$job]=waiting; done
    while true; do
        for job in "$@"; do
            [ "$busy" -lt "$count" ] || [ "${job% *}" = prepare ] || continue
            if [ "${state[$job]}" = waiting ] && may_begin "$job"; then begin "$job"; fi
        done
        [ ${#job_of[@]} -gt 0 ] || break
        result=0
        wait -n -p process "${!job_of[@]}" || result=$?
        ended "$process" "$result"
    done
}
