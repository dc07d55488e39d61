# What the server scripts share: start in the background with a pid file, wait until it answers,
# stop by process id. Sourced by them.
# shellcheck shell=bash
set -eu

# A port on the loopback that nobody listens on now.
free_port() {
    local port
    for _ in $(seq 1 100); do
        port=$((20000 + RANDOM % 12000))
        if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then
            echo "$port"
            return 0
        fi
    done
    echo "no free port found" >&2
    return 1
}

# spawn DIR COMMAND...: runs it with its log in DIR/server.log and its id in DIR/server.pid.
spawn() {
    local dir=$1
    shift
    setsid "$@" >>"$dir/server.log" 2>&1 </dev/null &
    echo $! >"$dir/server.pid"
}

# wait_http URL DIR: until the server answers, at most a minute.
wait_http() {
    local url=$1 dir=$2 answers
    for _ in $(seq 1 600); do
        answers=false
        curl -s -o /dev/null --noproxy '*' --max-time 2 "$url" && answers=true
        # One that ended leaves its port to others, who answer as well.
        if ! kill -0 "$(cat "$dir/server.pid")" 2>/dev/null; then
            echo "the server ended:" >&2
            tail -20 "$dir/server.log" >&2
            return 1
        fi
        ! $answers || return 0
        sleep 0.1
    done
    echo "$url does not answer" >&2
    return 1
}

# stop_server DIR: ends what DIR/server.pid names, by force after ten seconds.
stop_server() {
    local pid
    [ -f "$1/server.pid" ] || return 0
    pid=$(cat "$1/server.pid")
    rm -f "$1/server.pid"
    kill "$pid" 2>/dev/null || return 0
    for _ in $(seq 1 100); do
        kill -0 "$pid" 2>/dev/null || return 0
        sleep 0.1
    done
    kill -9 "$pid" 2>/dev/null || true
}
