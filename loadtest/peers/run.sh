#!/bin/sh
# Drives systems with the same job, one after the other, and prints one table.
#
#   loadtest/peers/run.sh all
#   loadtest/peers/run.sh hearth workerd
#
# What is installed, about 0.7 GB, what runs and what it stores are in a temporary folder and gone at the end,
# also on Ctrl-C. With PEERS_HOME=DIR what is installed stays in that folder for the next time. Each system has
# PEERS_WITHIN seconds (240), its installation included; one that fails is told and the others go on. Needed are
# Node.js with npm, Python with venv, curl, and for commands a Docker daemon with the session image. `hearth` is
# the release build, or HEARTH with the path of the program.
set -u
all="hearth restate workerd ray hearth-exec docker-exec llm-sandbox"
here=$(cd "$(dirname "$0")" && pwd)
within="${PEERS_WITHIN:-240}"

usage() {
    echo "$1; usage: run.sh all, or some of: $all" >&2
    exit 2
}

case "$within" in
'' | *[!0-9]* | 0) usage "PEERS_WITHIN is $within, and has to be a number of seconds" ;;
esac
[ $# -gt 0 ] || usage "no system is named"
for name in "$@"; do
    case " all $all " in
    *" $name "*) ;;
    *) usage "there is no system $name" ;;
    esac
done
case " $* " in
*" all "*) chosen=$all ;;
*) chosen=$* ;;
esac

work=$(mktemp -d "${TMPDIR:-/tmp}/peers-XXXXXX") || exit 1
running=""
stop() {
    trap '' INT TERM
    if [ -n "$running" ]; then
        kill "$running" 2>/dev/null
        wait "$running" 2>/dev/null
    fi
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

HEARTH="${HEARTH:-$here/../../target/release/hearth}"
PEERS_HOME="${PEERS_HOME:-$work/home}"
mkdir -p "$PEERS_HOME" || exit 1
PEERS_HOME=$(cd "$PEERS_HOME" && pwd) || exit 1
export HEARTH PEERS_HOME

failed=0
load=$(cut -d ' ' -f 1 /proc/loadavg 2>/dev/null || echo '?')
for name in $chosen; do
    echo "== $name" >&2
    # In the background, so that a signal to this script is heard at once; `timeout` makes a process group of
    # it, and passes the signal on to all of that.
    timeout --kill-after=30 "$within" sh "$here/one.sh" "$name" "$work/$name" >>"$work/table" &
    running=$!
    wait "$running"
    code=$?
    running=""
    [ "$code" -eq 0 ] && continue
    failed=1
    case "$code" in
    124 | 137) echo "== $name failed: not done within $within s" >&2 ;;
    *) echo "== $name failed; the last that its programs said:" >&2 ;;
    esac
    tail -n 5 "$work/$name"/*.log >&2 2>/dev/null
done

if [ -s "$work/table" ]; then
    echo "$(date -u +%F), $(nproc) cores, Linux $(uname -r), load average before: $load"
    echo
    echo "| system | p50 ms | p99 ms | 64 callers, 1/s |"
    echo "|---|---|---|---|"
    cat "$work/table"
fi
exit "$failed"
