#!/bin/sh
# Our own kernels next to the vendor's libraries, on an H200 (docs/benchmarks.md, "Our own kernels"):
#
#   sh benchmarks/reach/campaign.sh RESULTS
#
# Writes to RESULTS few_rows.md, squares.md, e4m3.md, fp8.md, decode_bf16.txt and decode_e4m3.txt, the
# experiments next to them, and log.txt with how long each part took. Language models' shapes in bf16
# come from the dispatcher's experiments:
#
#   sh benchmarks/dispatcher/campaign.sh RESULTS
#   python benchmarks/reach_table.py RESULTS/held-out --no-squares
#
# Every part has a limit of its own, so that one that hangs does not cost the others. PYTHON, DEVICE,
# DEVICES (all: shapes are distributed over the GPUs that are there) and LIMIT (seconds of each of the
# experiments, 600) may be set.
set -u
results=$1
python=${PYTHON:-python3} device=${DEVICE:-cuda:0}
here=$(dirname "$0")

part() { # LIMIT_S TITLE COMMAND...: prints to RESULTS/TITLE
  limit=$1 title=$2
  shift 2
  began=$(date +%s)
  timeout "$limit" "$@" >"$results/$title" 2>"$results/$title.err" ||
    { echo "$title ended with status $?"; tail -n 5 "$results/$title.err"; }
  echo "== $title took $(($(date +%s) - began)) s"
}

main() {
  for name in few_rows squares e4m3 fp8; do
    part "${LIMIT:-600}" "$name.log" "$python" -m gemmetry profile --spec "$here/$name.yaml" \
      --device "$device" ${DEVICES:+--devices "$DEVICES"} --experiment "$results/$name"
    part 30 "$name.md" "$python" "$here/../reach_table.py" "$results/$name"
  done
  part 60 decode_bf16.txt "$python" "$here/../decode/run.py" --m 1 2 4 8 16 --top 3
  part 60 decode_e4m3.txt "$python" "$here/../decode/run.py" --m 1 4 16 --top 3 --dtype e4m3
  cat "$results/few_rows.md" "$results/squares.md" "$results/e4m3.md" "$results/fp8.md"
  grep geometric "$results/decode_bf16.txt" "$results/decode_e4m3.txt"
}

mkdir -p "$results"
main 2>&1 | tee -a "$results/log.txt"
