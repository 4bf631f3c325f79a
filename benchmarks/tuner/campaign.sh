#!/bin/sh
# The whole space of the Triton provider in bf16 on a GPU, on which strategies are then compared
# without one:
#
#   sh benchmarks/tuner/campaign.sh RESULTS
#
# Writes to RESULTS:
#   space/               the experiment: every configuration of every shape, verified at level quick
#   h200_triton.json     the same as a compact file; copy it to tests/data/tuning/
#   strategies.txt       how the strategies do on it: the table of docs/tuner.md
#   log.txt              how long each part took
#
# It has 2146 configurations of 12 shapes. Compiling takes 0.3 s each on one core, while others are
# measured. A sample takes 25 to 75 ms, of which 15 to 50 ms are load before it
# (docs/measurement.md), and verifying and opening a configuration about 0.1 s: 0.2 to 0.3 s each
# with SAMPLES=3, 7 to 11 minutes of one H200. Within 350 s it measures 1200 to 1700
# of them: nine or ten shapes. Set DEVICES=all where several GPUs are: shapes are
# distributed over them. Six samples are the fewest that give an interval; with fewer, simulations
# assume an error of 1 %.
#
# Configurations are measured shape by shape, the smallest spaces first, and each is stored at once.
# Started again, or with a larger LIMIT, it continues, also from a copy of RESULTS/space on another
# machine of the same kind; a shape counts once all of its configurations are measured. A hanging
# configuration is ended after 30 s and skipped. PYTHON, DEVICE, DEVICES, SAMPLES, LIMIT (seconds of
# the search) and SPEC (the products) may be set; with DRY_RUN=1 the spaces are listed, and nothing
# runs.
set -u
results=$1
python=${PYTHON:-python3} device=${DEVICE:-cuda:0} limit=${LIMIT:-350}
spec=${SPEC:-$(dirname "$0")/campaign.yaml}

search() {
  # The signal ends it if the limit, which is looked at between configurations, does not.
  timeout --signal=INT --kill-after=20 $((limit + 30)) "$python" -m gemmetry tune --spec "$spec" \
    --strategy exhaustive --finalists 0 --benchmark-repetitions "${SAMPLES:-3}" \
    --device "$device" ${DEVICES:+--devices "$DEVICES"} --experiment "$results/space" "$@"
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
