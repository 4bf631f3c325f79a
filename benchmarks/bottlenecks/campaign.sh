#!/bin/sh
# Collect the counters of the planted bottlenecks and of products of cuBLAS and Triton, on a machine
# with an NVIDIA GPU and Nsight Compute; about 4 minutes on an H200:
#
#   sh benchmarks/bottlenecks/campaign.sh RESULTS
#
# Writes to RESULTS the raw pages planted_severe.csv, planted_mild.csv and gemms.csv, next to each the
# page with the rules' results (NAME_details.csv), the products in their order (gemms.json), with what
# they were collected (campaign.json), and all text, with the times without the profiler (log.txt).
# Every part has a limit of its own, so that one that hangs does not cost the others; where
# `gemmetry counters collect` writes no table, ncu's set "full" is collected without it. PYTHON, NCU
# and SET may be set.
set -u
results=$1
python=${PYTHON:-python3} ncu=${NCU:-ncu} set=${SET:-gemm}
here=$(dirname "$0")
scratch=$(mktemp -d)
mkdir -p "$results"
started=$(date +%s)

part() { # LIMIT_S TITLE COMMAND...
  limit=$1 title=$2
  shift 2
  began=$(date +%s)
  echo "== $title"
  timeout "$limit" "$@" || echo "$title ended with status $?"
  echo "== $title took $(($(date +%s) - began)) s"
}

page() { # NAME: a page of the report `stem`, as CSV
  "$ncu" --import "$stem.ncu-rep" --csv --page "$1" --print-units base
}

profile() { # LIMIT_S NAME WHICH NCU_WHICH COMMAND...: NAME.csv, of the launches that WHICH selects
  limit=$1 name=$2 which=$3 ncu_which=$4 stem=$scratch/$2
  shift 4
  # shellcheck disable=SC2086 # an option and its value
  part "$limit" "$name" "$python" -m gemmetry counters collect --set "$set" $which \
    -o "$stem.ncu-rep" -- "$@"
  cat "$stem.json" "$stem.application.log" "$stem.profiler.log" | grep -v '^==PROF== Profiling'
  if test ! -s "$stem.csv"; then
    # shellcheck disable=SC2086
    part "$limit" "$name-full" "$ncu" --set full --clock-control none --target-processes all \
      $ncu_which -f -o "$stem" "$@"
    page raw >"$stem.csv"
  fi
  page details >"$results/${name}_details.csv"
  cp "$stem.csv" "$results/"
}

describe() { # campaign.json: when, with what, and how long it took
  NCU_VERSION=$("$ncu" --version | sed -n 's/^Version \([0-9]*\.[0-9]*\.[0-9]*\).*/\1/p') \
    GPU=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1) \
    DRIVER=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader | head -1) \
    METRICS=$set STARTED=$started "$python" - <<'END' >"$results/campaign.json"
import json, os, time
from importlib.metadata import version

given = os.environ
print(json.dumps({
    "date": time.strftime("%Y-%m-%d", time.gmtime(int(given["STARTED"]))),
    "gpu": given["GPU"], "driver": given["DRIVER"], "ncu": given["NCU_VERSION"],
    "torch": version("torch"), "triton": version("triton"), "set": given["METRICS"],
    "seconds": round(time.time() - int(given["STARTED"])),
}, indent=1))
END
}

own='_(mild|severe)'
{
  "$ncu" --version
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.limit --format=csv
  part 60 times "$python" "$here/run.py" --launches 5
  profile 100 planted_severe "--kernel $own" "-k regex:$own" \
    "$python" "$here/run.py" --variant severe
  profile 100 planted_mild "--kernel $own" "-k regex:$own" "$python" "$here/run.py" --variant mild
  profile 120 gemms "--nvtx profiled" "--nvtx --nvtx-include profiled]" \
    "$python" "$here/gemms.py" --json "$results/gemms.json"
  describe || rm "$results/campaign.json"
  part 30 predictions "$python" "$here/predicted_counters.py" "$results/planted_severe.csv"
  ls -l "$results"
} 2>&1 | tee "$results/log.txt"
rm -rf "$scratch"
