#!/usr/bin/env bash
# Runs a command on every host of HOSTS at the same time, in this folder.
#
#   HOSTS="node01 node02" ssh_launcher.sh COMMAND ARGUMENTS...
#
# Its exit status is that of the first host, in order, whose command failed.
set -u
: "${HOSTS:?the hosts, separated by spaces}"

line="cd $(printf %q "$PWD") && exec $(printf '%q ' "$@")"
clients=()
for host in $HOSTS; do
  # With a terminal, the remote command receives SIGHUP when ssh is ended.
  ssh -tt -o BatchMode=yes "$host" "$line" </dev/null &
  clients+=($!)
done
trap 'kill "${clients[@]}" 2>/dev/null' TERM INT HUP

status=0
for client in "${clients[@]}"; do
  wait "$client"
  ended=$?
  if [ "$status" -eq 0 ]; then status=$ended; fi
done
exit "$status"
