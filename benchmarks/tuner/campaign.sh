#!/bin/sh
# The whole space of the Triton provider in bf16 on a GPU, on which strategies are then compared
# without one; at most 400 s on an H200:
#
#   sh benchmarks/tuner/campaign.sh RESULTS
#
# Writes to RESULTS:
#   space/               the experiment: every configuration of every shape, verified at level quick
#   h200_triton.json     the same as a compact file; copy it to tests/data/tuning/
#   strategies.txt       how the strategies do on it: the table of docs/tuner.md
#   log.txt              how long each part took
#
# Six samples of each are the fewest that give an interval. Configurations are measured shape by
# shape. Started again, it continues where its time ended; a shape counts once all of its
# configurations are measured. PYTHON, DEVICE and LIMIT (seconds of the search) may be set; with
# DRY_RUN=1 the spaces are listed, and nothing runs.
set -u
results=$1
python=${PYTHON:-python3} device=${DEVICE:-cuda:0} limit=${LIMIT:-350}
shapes=16x14336x4096,64x4096x4096,32x8192x8192,512x4096x4096,16x4096x14336,128x6144x4096
shapes=$shapes,32x6144x4096,64x7168x2048,1024x1024x4096,16x6144x4096,2048x2048x2048,256x4096x2048

search() {
  "$python" -m gemmetry tune --provider triton --dtypes bf16 --layouts tn --shapes "$shapes" \
    --strategy exhaustive --finalists 0 --benchmark-repetitions 6 --distribution normal \
    --verification-providers device \
    --device "$device" --experiment "$results/space" "$@"
}

part() { # TITLE COMMAND...: prints to RESULTS/TITLE.txt
  title=$1
  shift
  began=$(date +%s)
  "$@" >"$results/$title.txt" 2>"$results/$title.err" ||
    { echo "$title ended with status $?"; tail -n 5 "$results/$title.err"; }
  echo "== $title took $(($(date +%s) - began)) s"
}

main() {
  part search search --time "${limit}s"
  part space "$python" -m gemmetry tune --simulate "$results/space" \
    -o "$results/h200_triton.json" --format space
  part strategies "$python" -m gemmetry tune --simulate "$results/h200_triton.json" \
    --strategy model,exhaustive,halving,random
  cat "$results/strategies.txt"
}

if test -n "${DRY_RUN:-}"; then
  search --dry-run
else
  mkdir -p "$results"
  main 2>&1 | tee -a "$results/log.txt"
fi
