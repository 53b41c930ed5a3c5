#!/bin/sh
# Installs and starts peers, drives each with the same job, prints one table, and takes all down again.
#
#   loadtest/peers/run.sh [hearth] [restate] [workerd] [ray] [docker-exec] [llm-sandbox]
#   loadtest/peers/run.sh clean
#
# Without arguments: all. What is installed, about 0.7 GB, goes to target/peers and stays there for the next
# time; `clean` removes it. What runs and what it stores ends with the script. Node.js with npm, Python with
# venv, curl and a Docker daemon have to be there; a peer that lacks one fails and the others go on. `hearth`
# needs the release build, or HEARTH with the path of the program.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
home="$root/target/peers"
work=$(mktemp -d)
pids=""
hearth_program="${HEARTH:-$root/target/release/hearth}"
mkdir -p "$home"

# Ends what the peer before has started, so that no two are there at once.
end_programs() {
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    for pid in $pids; do wait "$pid" 2>/dev/null || true; done
    pids=""
}

stop() {
    end_programs
    docker rm -f "hearth-peer-$$" >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap stop EXIT
trap 'exit 130' INT TERM

say() { echo "== $*" >&2; }

failed() {
    missing=1
    say "$1 failed; the last that its programs said:"
    tail -n 5 "$work"/*.log >&2 2>/dev/null || true
}

# Waits until a line of shell succeeds.
until_ok() {
    tries=0
    until sh -c "$1" >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 300 ]; then
            say "in vain waited for: $1"
            return 1
        fi
        sleep 0.2
    done
}

npm_install() {
    [ -d "$home/node_modules/$1" ] || (cd "$home" && npm install --silent --no-fund --no-audit "$1@$2")
}

drive() { node "$here/drive.mjs" "$@" >>"$work/table"; }

hearth() {
    say "hearth, embedded"
    "$hearth_program" dev --listen 127.0.0.1:17420 --data "$work/hearth" --token peer-token >"$work/hearth.log" 2>&1 &
    pids="$pids $!"
    until_ok "curl -sf http://127.0.0.1:17420/readyz"
    drive hearth http://127.0.0.1:17420
}

restate() {
    say "restate, virtual object"
    npm_install @restatedev/restate-server 1.7.12
    npm_install @restatedev/restate-sdk 1.17.2
    cp "$here/restate.mjs" "$home/restate.mjs"
    (cd "$home" && exec node restate.mjs) >"$work/service.log" 2>&1 &
    pids="$pids $!"
    (cd "$home" && exec node_modules/.bin/restate-server --base-dir "$work/restate") >"$work/restate.log" 2>&1 &
    pids="$pids $!"
    until_ok "curl -sf http://127.0.0.1:9070/health"
    until_ok "curl -sf http://127.0.0.1:9070/deployments -H 'content-type: application/json' -d '{\"uri\": \"http://127.0.0.1:9080\"}'"
    drive restate http://127.0.0.1:8080
}

workerd() {
    say "workerd, Durable Object with a put into its storage"
    npm_install workerd 1.20261117.1
    mkdir -p "$work/objects"
    cp "$here/workerd.capnp" "$here/workerd.mjs" "$work/"
    (cd "$work" && exec "$home/node_modules/.bin/workerd" serve workerd.capnp) >"$work/workerd.log" 2>&1 &
    pids="$pids $!"
    until_ok "curl -sf http://127.0.0.1:18787/ready -d x"
    drive workerd http://127.0.0.1:18787
}

venv() {
    [ -x "$home/venv/bin/python" ] || python3 -m venv "$home/venv"
    "$home/venv/bin/python" -c "import $1" 2>/dev/null || "$home/venv/bin/pip" install --quiet "$2"
}

ray() {
    say "ray, an actor each; in memory alone"
    venv ray "ray==2.60.0"
    # Its sockets lie in this folder, and their paths have to be short.
    "$home/venv/bin/python" "$here/ray_actor.py" "$work/ray" >>"$work/table"
}

docker_exec() {
    say "docker exec, by its command line"
    docker run -d --name "hearth-peer-$$" --network none --entrypoint sleep hearth-session:latest 3600 >/dev/null
    drive docker-exec "hearth-peer-$$"
    docker rm -f "hearth-peer-$$" >/dev/null
}

llm_sandbox() {
    say "llm-sandbox"
    venv llm_sandbox "llm-sandbox[docker]==0.3.46"
    "$home/venv/bin/python" "$here/llm_sandbox_exec.py" hearth-session:latest >>"$work/table"
}

[ $# -gt 0 ] || set -- hearth restate workerd ray docker-exec llm-sandbox
missing=0
for peer in "$@"; do
    case "$peer" in
    hearth) hearth ;;
    restate) restate ;;
    workerd) workerd ;;
    ray) ray ;;
    docker-exec) docker_exec ;;
    llm-sandbox) llm_sandbox ;;
    clean) rm -rf "$home" ;;
    *)
        say "there is no peer $peer; there are hearth restate workerd ray docker-exec llm-sandbox, and clean"
        exit 2
        ;;
    esac || failed "$peer"
    end_programs
done
[ -s "$work/table" ] || exit "$missing"
printf '%-14s %12s %12s %14s\n' system "p50 ms" "p99 ms" "64 callers 1/s"
cat "$work/table"
exit "$missing"
