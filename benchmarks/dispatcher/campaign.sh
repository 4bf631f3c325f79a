#!/bin/sh
# The table of the dispatcher for an H200, and how good its choices are on shapes that it has never
# seen; about 25 minutes on an H200, half of that on two:
#
#   sh benchmarks/dispatcher/campaign.sh RESULTS
#
# Writes to RESULTS:
#   table.json        the table; copy it to src/gemmetry/tuning/dispatcher/tables/nvidia_h200.json
#   regret.txt, regret_json.txt  how good its choices are; choices.csv shape by shape
#   host_time.txt     what choosing costs on the host, next to torch.mm
#   tuning/, held-out/, proofs/  the experiments; log.txt  how long each part took
#
# Every part has a limit of its own, so that one that hangs does not cost the others; the experiments
# go on where they stopped if the script is started again. The last three parts need no GPU. PYTHON,
# DEVICE, DEVICES (all: shapes are distributed over the GPUs that are there) and LIMIT (seconds of each
# of the two large experiments, 900) may be set; with DRY_RUN=1 the commands are printed, and nothing
# runs.
set -u
results=$1
python=${PYTHON:-python3} device=${DEVICE:-cuda:0} most=${LIMIT:-900}
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
  run "$most" tuning profile --spec "$here/tuning.yaml"
  part 30 proofs_spec "$python" "$here/proofs.py" "$results/tuning"
  run 110 proofs verify run --spec "$results/proofs_spec.txt"
  run "$most" held-out profile --spec "$here/held_out.yaml"
  part 60 build "$python" -m gemmetry dispatcher build "$results/tuning" "$results/proofs" \
    -o "$results/table.json"
  part 60 regret "$python" -m gemmetry dispatcher evaluate "$results/held-out" \
    --table "$results/table.json" -o "$results/choices.csv"
  part 60 regret_json "$python" -m gemmetry dispatcher evaluate "$results/held-out" \
    --table "$results/table.json" --json
  GEMMETRY_DISPATCHER_TABLE=$results/table.json
  export GEMMETRY_DISPATCHER_TABLE
  part 60 host_time "$python" "$here/host_time.py"
  test -n "${DRY_RUN:-}" || cat "$results/build.txt" "$results/regret.txt" "$results/host_time.txt"
}

if test -n "${DRY_RUN:-}"; then
  main
else
  mkdir -p "$results"
  main 2>&1 | tee -a "$results/log.txt"
fi
