#!/bin/sh
# Whether the store answers, with the password; it does not while it reads its data. redis-cli takes the password
# from its environment, which only its own user can read.
set -eu
password=$(tr -d '\r\n' <"$REDIS_PASSWORD_FILE")
answer=$(REDISCLI_AUTH=$password redis-cli -p 6379 ping)
[ "$answer" = PONG ] || { echo "$answer"; exit 1; }
