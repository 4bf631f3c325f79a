#!/bin/sh
# The tuned table of an H200: 40 shapes in bf16 and e4m3, in one command, with the gain over torch's
# default and, where nvmath-python is installed, over the best of cuBLASLt's proposals:
#
#   sh benchmarks/tuner/h200.sh RESULTS
#
# Writes to RESULTS:
#   table.json    the table, for gemmetry.matmul
#   winners.md    what was found for each shape, with intervals; gains.txt  the same as text
#   tuned/        the experiment: the finals; in tuned/search/ everything that was tried, and in
#                 tuned/proofs/ the thorough verification of the finalists
#
# It has 976 configurations; trying them takes 4 minutes on two H200s (DEVICES=all), the finals 5.
# LIMIT (seconds, 560) ends it; started again, it continues. Where it ends within the finals, the
# table is made of what is stored. PYTHON, DEVICE, DEVICES (all: shapes are distributed over the GPUs
# that are there) and SPEC may be set; with DRY_RUN=1 the spaces are listed, and nothing runs.
set -u
results=$1
python=${PYTHON:-python3} device=${DEVICE:-cuda:0} limit=${LIMIT:-560}
spec=${SPEC:-$(dirname "$0")/h200.yaml}

tune() {
  timeout --signal=INT --kill-after=20 "$limit" "$python" -m gemmetry tune --spec "$spec" \
    --strategy exhaustive --finalists 1 --device "$device" ${DEVICES:+--devices "$DEVICES"} \
    --experiment "$results/tuned" "$@"
}

if test -n "${DRY_RUN:-}"; then
  tune --dry-run
else
  mkdir -p "$results"
  began=$(date +%s)
  tune -o "$results/table.json,$results/winners.md" \
    >"$results/gains.txt" 2>"$results/tuned.err" ||
    { echo "tune ended with status $?"; tail -n 5 "$results/tuned.err"; }
  if ! test -s "$results/table.json"; then
    proofs=
    if test -d "$results/tuned/proofs"; then proofs=$results/tuned/proofs; fi
    "$python" -m gemmetry dispatcher build "$results/tuned" ${proofs:+"$proofs"} \
      -o "$results/table.json"
  fi
  cat "$results/gains.txt"
  echo "== it took $(($(date +%s) - began)) s"
fi
