#!/bin/sh
# Two tile sizes of the block-scaled Triton kernel compared by their hardware counters, and times of
# the block-scaled formats; two to three minutes on an H200 with Nsight Compute:
#
#   sh benchmarks/block_scaled/campaign.sh RESULTS
#
# Writes to RESULTS:
#   profile/, profile.txt  `gemmetry profile --counters` of the two tiles
#   TILE.csv               counters of six launches of each tile, next to the report
#   compare.txt, .html     their comparison; beside.txt, the document's checklist for the first tile
#   formats/, formats.txt  times of the formats; formats.csv as a table
#   log.txt                all other text, and how long each part took
# Every part has a limit of its own, so that one that hangs does not cost the others. PYTHON may be
# set; with DRY_RUN=1 the commands are printed, and nothing runs.
set -u
results=$1
python=${PYTHON:-python3}
here=$(dirname "$0")
operation=matmul_8192x8192x1024_e2m1t_e2m1n_f16t_vs16_e8m0
first=widened_tile_256x128x64_warps8_stages3_group8
second=widened_tile_128x128x64_warps4_stages4_group8

part() { # LIMIT_S TITLE COMMAND...: prints to RESULTS/TITLE.txt
  limit=$1 title=$2
  shift 2
  if test -n "${DRY_RUN:-}"; then
    echo "$@"
    return
  fi
  began=$(date +%s)
  timeout "$limit" "$@" >"$results/$title.txt" 2>"$results/$title.err" ||
    echo "$title ended with status $?"
  cat "$results/$title.err"
  rm "$results/$title.err"
  echo "== $title took $(($(date +%s) - began)) s"
}

gemmetry() { # LIMIT_S TITLE ARGUMENTS...
  limit=$1 title=$2
  shift 2
  part "$limit" "$title" "$python" -m gemmetry "$@"
}

collect() { # CONFIGURATION: six launches, enough for an interval
  gemmetry 45 "collect_$1" counters collect --nvtx profiled -o "$results/$1.ncu-rep" --force -- \
    "$python" "$here/../bottlenecks/gemms.py" --launches 6 "triton:$operation:$1"
}

compare() { # TITLE OPTION...
  title=$1
  shift
  gemmetry 20 "$title" counters compare "$results/$first.csv" "$results/$second.csv" \
    --operation "$operation" --label 256x128 --label 128x128 "$@"
}

test -n "${DRY_RUN:-}" || mkdir -p "$results"
main() {
  part 20 versions nvidia-smi --query-gpu=name,driver_version,clocks.max.sm --format=csv
  gemmetry 75 profile profile --shapes 8192x8192x1024 --dtypes e2m1:e2m1:f16 --scaling vs16_e8m0 \
    --providers triton --device cuda:0 --dispatches "configuration=$first,configuration=$second" \
    --verification-level quick --counters --experiment "$results/profile" --fresh
  collect "$first"
  collect "$second"
  compare compare
  compare compare_page -o "$results/compare.html" # it needs plotly
  gemmetry 20 beside counters diagnose "$results/$first.csv" --operation "$operation" --beside
  gemmetry 75 formats profile --spec "$here/formats.yaml" --device cuda:0 \
    --experiment "$results/formats" --fresh -o "$results/formats.csv"
}
if test -n "${DRY_RUN:-}"; then main; else main 2>&1 | tee "$results/log.txt"; fi
