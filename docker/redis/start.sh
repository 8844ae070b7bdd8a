#!/bin/sh
# Becomes the store. The password goes from its file to the server through a pipe: it is on no command line and in
# no environment.
set -eu

conf=${1:?usage: start.sh redis.conf}
secret=${REDIS_PASSWORD_FILE:?names the file that holds the password}

[ -r "$secret" ] || { echo "start.sh: cannot read $secret as user $(id -u)" >&2; exit 1; }
# one line, without its end, quoted as redis.conf has it
password=$(tr -d '\r\n' <"$secret" | sed 's/[\\"]/\\&/g')
[ -n "$password" ] || { echo "start.sh: $secret is empty" >&2; exit 1; }

exec redis-server "$conf" - <<EOF
requirepass "$password"
maxmemory ${REDIS_MAXMEMORY:?such as 2gb}
EOF
