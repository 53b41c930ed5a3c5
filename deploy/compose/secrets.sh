#!/usr/bin/env bash
# Makes what the members prove themselves with: an authority, certificates, passwords, a token. Run it once; it keeps what is
# there. `SECRETS` chooses the folder, `NAMES` further names that the servers' certificates are for.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
out="${SECRETS:-secrets}"
if [[ -e "$out/token" ]]; then
  echo "$out is there already; remove it to begin anew"
  exit 0
fi
umask 077
mkdir -p "$out/members" "$out/nats" "$out/redis" "$out/ca"

openssl ecparam -genkey -name prime256v1 -noout -out "$out/ca/ca.key"
openssl req -x509 -new -key "$out/ca/ca.key" -days 3650 -subj "/CN=hearth stores" -out "$out/ca/ca.pem" \
  -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" 2>/dev/null

# A certificate of the servers $2… in the folder $1.
certificate() {
  local name="$1" alt=""
  shift
  for host in "$@" ${NAMES:-}; do alt+="DNS:$host,"; done
  openssl ecparam -genkey -name prime256v1 -noout -out "$out/$name/$name.key"
  openssl req -new -key "$out/$name/$name.key" -subj "/CN=$name" |
    openssl x509 -req -CA "$out/ca/ca.pem" -CAkey "$out/ca/ca.key" -CAcreateserial -days 825 \
      -extfile <(printf 'subjectAltName=%s\nextendedKeyUsage=serverAuth,clientAuth\n' "${alt%,}") \
      -out "$out/$name/$name.pem" 2>/dev/null
  cp "$out/ca/ca.pem" "$out/$name/"
}
certificate nats nats-0 nats-1 nats-2
certificate redis redis
cp "$out/ca/ca.pem" "$out/members/"

# A letter first: NATS reads a word that begins with digits as a number.
word() { printf 'p%s' "$(openssl rand -hex 24)"; }
replica_nats="$(word)" node_nats="$(word)" replica_redis="$(word)" node_redis="$(word)" node_token="$(word)"
token="$(word)"

printf 'NATS_REPLICA_PASSWORD=%s\nNATS_NODE_PASSWORD=%s\n' "$replica_nats" "$node_nats" >"$out/nats.env"
printf 'SANDBOX_AUTH_TOKEN=%s\n' "$node_token" >"$out/members.env"
printf 'HEARTH_NATS_USER=replica\nHEARTH_NATS_PASSWORD=%s\nHEARTH_REDIS_URL=rediss://replica:%s@redis:6379\n' \
  "$replica_nats" "$replica_redis" >"$out/replica.env"
printf 'HEARTH_NATS_USER=node\nHEARTH_NATS_PASSWORD=%s\nHEARTH_REDIS_URL=rediss://node:%s@redis:6379\n' \
  "$node_nats" "$node_redis" >"$out/node.env"
# Replicas write all keys of the cluster; nodes their own rows, and read the replicas' (which is how they find one).
cat >"$out/redis/users.acl" <<ACL
user default on nopass nocommands +ping
user replica on #$(printf %s "$replica_redis" | sha256sum | cut -d' ' -f1) ~hearth:* ~{hearth:* resetchannels +@read +@write +@scripting +@connection +time -@dangerous
user node on #$(printf %s "$node_redis" | sha256sum | cut -d' ' -f1) ~{hearth:nodes}:* ~hearth:workspaces %R~{hearth:replicas}:* resetchannels +@read +@write +@scripting +@connection +time -@dangerous
ACL
printf '[[token]]\nsha256 = "%s"\ntenant = "default"\nsubject = "admin"\nrole = "admin"\n' \
  "$(printf %s "$token" | sha256sum | cut -d' ' -f1)" >"$out/members/tokens.toml"
printf '%s\n' "$token" >"$out/token"
# The servers and members in the containers run as other users than whoever made this.
chmod 755 "$out" "$out/members" "$out/nats" "$out/redis"
chmod 644 "$out"/members/* "$out"/nats/* "$out"/redis/*
echo "made $out; the API's token is in $out/token"
