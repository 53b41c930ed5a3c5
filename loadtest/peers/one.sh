#!/bin/sh
# Installs, starts and drives one system, prints its line of the table, and takes all of it down. `run.sh` calls it:
#
#   one.sh SYSTEM FOLDER
set -eu
here=$(cd "$(dirname "$0")" && pwd)
name=$1
work=$2
home=$PEERS_HOME
image="${SANDBOX_IMAGE:-hearth-session:latest}"
container="hearth-peer-$$"
pids=""
port=0
mkdir -p "$work"

stop() {
    trap '' INT TERM
    for pid in $pids; do kill "$pid" 2>/dev/null || true; done
    for pid in $pids; do wait "$pid" 2>/dev/null || true; done
    case "$name" in
    docker-exec | llm-sandbox) docker rm -f "$container" >/dev/null 2>&1 || true ;;
    # Its sessions outlive a node that only ends.
    hearth-exec) (hearth_node --close-sessions) >>"$work/node.log" 2>&1 || true ;;
    esac
}
trap stop EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

need() {
    for program in "$@"; do
        command -v "$program" >/dev/null || {
            echo "$program is not installed" >&2
            exit 1
        }
    done
}

# Starts a program with its output in a log of that name.
start() {
    log="$work/$1.log"
    shift
    "$@" >"$log" 2>&1 &
    last=$!
    pids="$pids $last"
}

# Waits for a command to succeed, as long as the program that was started last is there. `run.sh` limits the time.
until_ok() {
    until "$@" >/dev/null 2>&1; do
        kill -0 "$last" 2>/dev/null || {
            echo "it ended before it served" >&2
            exit 1
        }
        sleep 0.2
    done
}

free_port() {
    node -e 'const s = require("node:net").createServer().listen(0, "127.0.0.1", () => { console.log(s.address().port); s.close(); })'
}

npm_install() {
    need npm
    [ -d "$home/node_modules/$1" ] ||
        npm install --prefix "$home" --silent --no-fund --no-audit "$1@$2" >"$work/npm.log" 2>&1
}

python_install() {
    need python3
    [ -x "$home/venv/bin/python" ] || python3 -m venv "$home/venv"
    "$home/venv/bin/python" -c "import $1" 2>/dev/null ||
        "$home/venv/bin/pip" install --quiet --disable-pip-version-check "$2" >"$work/pip.log" 2>&1
}

hearth_version() { "$HEARTH" --version | cut -d ' ' -f 2; }

# By the copy in the folder of what is installed: modules are looked for from there.
drive() {
    cp "$here/drive.mjs" "$home/drive.mjs"
    node "$home/drive.mjs" "$@" 2>"$work/driver.log"
}

hearth() {
    port=$(free_port)
    start hearth "$HEARTH" dev --listen "127.0.0.1:$port" --data "$work/data" --token peer-token
    until_ok curl -sf "http://127.0.0.1:$port/readyz"
    drive hearth "hearth $(hearth_version), embedded" "http://127.0.0.1:$port"
}

hearth_node() {
    exec env SANDBOX_LISTEN_ADDR="127.0.0.1:$port" SANDBOX_AUTH_TOKEN=peer-token SANDBOX_NODE_ID="peer-$$" \
        SANDBOX_STATE_DIR="$work/state" SANDBOX_DRIVER=docker SANDBOX_IMAGE="$image" "$HEARTH" node "$@"
}

hearth_exec() {
    need docker
    port=$(free_port)
    start node hearth_node
    until_ok curl -sf "http://127.0.0.1:$port/readyz"
    drive hearth-exec "hearth $(hearth_version) node: a command" "http://127.0.0.1:$port"
}

restate() {
    version=1.7.12
    npm_install @restatedev/restate-server "$version"
    npm_install @restatedev/restate-sdk 1.17.2
    npm_install @restatedev/restate-sdk-clients 1.17.2
    cp "$here/restate.mjs" "$home/restate.mjs"
    service=$(free_port) ingress=$(free_port) admin=$(free_port) own=$(free_port)
    start service env RESTATE_LOGGING=ERROR node "$home/restate.mjs" "$service"
    start restate env RESTATE_INGRESS__BIND_ADDRESS="127.0.0.1:$ingress" RESTATE_ADMIN__BIND_ADDRESS="127.0.0.1:$admin" \
        RESTATE_BIND_ADDRESS="127.0.0.1:$own" RESTATE_ADVERTISED_ADDRESS="http://127.0.0.1:$own" \
        "$home/node_modules/.bin/restate-server" --base-dir "$work/data"
    until_ok curl -sf "http://127.0.0.1:$admin/health"
    until_ok curl -sf "http://127.0.0.1:$admin/deployments" -H 'content-type: application/json' \
        -d "{\"uri\": \"http://127.0.0.1:$service\"}"
    drive restate "Restate $version virtual object" "http://127.0.0.1:$ingress"
}

workerd() {
    version=1.20261117.1
    npm_install workerd "$version"
    port=$(free_port)
    mkdir -p "$work/objects"
    cp "$here/workerd.capnp" "$here/workerd.mjs" "$work/"
    start workerd "$home/node_modules/.bin/workerd" serve "$work/workerd.capnp" \
        --directory-path "objects=$work/objects" --socket-addr "http=127.0.0.1:$port"
    until_ok curl -sf "http://127.0.0.1:$port/ready" -d x
    drive workerd "workerd $version Durable Object" "http://127.0.0.1:$port"
}

ray() {
    version=2.60.0
    python_install ray "ray==$version"
    # Its sockets lie in this folder, and their paths have to be short.
    "$home/venv/bin/python" "$here/ray_actor.py" "Ray $version actor (not durable)" "$work" >"$work/driver.log" 2>&1
    # Warnings of its daemons are among what it prints.
    grep '^| ' "$work/driver.log"
}

docker_exec() {
    need docker
    docker run -d --name "$container" --network none --entrypoint sleep "$image" 3600 >/dev/null
    drive docker-exec "docker exec $(docker version -f '{{.Client.Version}}'), command line" "$container"
}

llm_sandbox() {
    version=0.3.46
    need docker
    python_install llm_sandbox "llm-sandbox[docker]==$version"
    "$home/venv/bin/python" "$here/llm_sandbox_exec.py" "llm-sandbox $version" "$image" "$container" 2>"$work/driver.log"
}

need node curl
case "$name" in
hearth) hearth ;;
hearth-exec) hearth_exec ;;
restate) restate ;;
workerd) workerd ;;
ray) ray ;;
docker-exec) docker_exec ;;
llm-sandbox) llm_sandbox ;;
esac
