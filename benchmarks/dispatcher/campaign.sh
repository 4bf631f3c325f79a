#!/bin/sh
# The table of the dispatcher for the GPU at hand, and how good its choices are on shapes that no
# table has; about 10 minutes on one H100 or H200:
#
#   sh benchmarks/dispatcher/campaign.sh RESULTS
#
# Writes to RESULTS:
#   table.json        the table; copy it to src/gemmetry/tuning/dispatcher/tables/, named as the product
#   regret.txt, regret_json.txt  how good its choices are; choices.csv shape by shape
#   trials.txt        the same where each shape is tried first; trials.csv shape by shape
#   show.txt          what it chooses, and what of it does not fit this process
#   host_time.txt     what choosing costs on the host, next to torch.mm
#   tuning/, held-out/  the experiments; log.txt  how long each part took
#
# Every part has a limit of its own, so that one that hangs does not cost the others; the experiments
# go on where they stopped if the script is started again. PYTHON, DEVICE, MINUTES (of the table, 5),
# LIMIT (seconds of the held-out experiment, 230) and DEVICES (all: shapes are distributed over the
# GPUs that are there) may be set; with DRY_RUN=1 the commands are printed, and nothing runs.
set -u
results=$1
python=${PYTHON:-python3} device=${DEVICE:-cuda:0} most=${LIMIT:-230}
minutes=${MINUTES:-5}
here=$(dirname "$0")

part() { # LIMIT_S TITLE COMMAND...: prints to RESULTS/TITLE.txt
  limit=$1 title=$2
  shift 2
  if test -n "${DRY_RUN:-}"; then
    echo "$@"
    return
  fi
  began=$(date +%s)
  timeout "$limit" "$@" >"$results/$title.txt" 2>"$results/$title.err" ||
    { echo "$title ended with status $?"; tail -n 5 "$results/$title.err"; }
  echo "== $title took $(($(date +%s) - began)) s"
}

run() { # LIMIT_S TITLE COMMAND...: of an experiment called TITLE
  limit=$1 title=$2
  shift 2
  part "$limit" "$title" "$python" -m gemmetry "$@" --device "$device" \
    ${DEVICES:+--devices "$DEVICES"} --experiment "$results/$title"
}

main() {
  run $((${minutes%.*} * 60 + 60)) tuning dispatcher tune --spec "$here/tuning.yaml" --minutes "$minutes" \
    -o "$results/table.json"
  run "$most" held-out profile --spec "$here/held_out.yaml"
  part 60 show "$python" -m gemmetry dispatcher show "$results/table.json"
  part 60 regret "$python" -m gemmetry dispatcher evaluate "$results/held-out" \
    --table "$results/table.json" -o "$results/choices.csv"
  part 240 trials "$python" -m gemmetry dispatcher evaluate "$results/held-out" \
    --table "$results/table.json" --trials -o "$results/trials.csv"
  part 60 regret_json "$python" -m gemmetry dispatcher evaluate "$results/held-out" \
    --table "$results/table.json" --json
  GEMMETRY_DISPATCHER_TABLE=$results/table.json
  export GEMMETRY_DISPATCHER_TABLE
  part 60 host_time "$python" "$here/host_time.py"
  test -n "${DRY_RUN:-}" || cat "$results/tuning.txt" "$results/regret.txt" "$results/trials.txt" "$results/host_time.txt"
}

if test -n "${DRY_RUN:-}"; then
  main
else
  mkdir -p "$results"
  main 2>&1 | tee -a "$results/log.txt"
fi
