#!/bin/sh
# Collect the counters of the planted bottlenecks and of products of cuBLAS and Triton with Nsight
# Compute, on a machine with an NVIDIA GPU; about 4 minutes on an H200:
#
#   sh benchmarks/bottlenecks/campaign.sh RESULTS
#
# Writes to RESULTS the raw pages planted_severe.csv, planted_mild.csv and gemms.csv (base units),
# their order (gemms.json), the times without the profiler (planted.json), and all text (log.txt).
# Every part has a limit of its own, so that one that hangs does not cost the others. PYTHON, NCU and
# SET may be set. Clocks are left alone; caches are flushed before each pass (ncu's default).
set -u
results=$1
python=${PYTHON:-python3} ncu=${NCU:-ncu} set=${SET:-full}
here=$(dirname "$0")
scratch=$(mktemp -d)
mkdir -p "$results"

part() { # LIMIT_S NAME COMMAND...
  limit=$1 name=$2
  shift 2
  began=$(date +%s)
  echo "== $name"
  timeout "$limit" "$@" || echo "$name ended with status $?"
  echo "== $name took $(($(date +%s) - began)) s"
}

profile() { # LIMIT_S NAME NCU_OPTION... -- COMMAND...: NAME.csv
  limit=$1 name=$2
  shift 2
  part "$limit" "$name" "$ncu" --set "$set" --clock-control none --cache-control all \
    --target-processes all --log-file "$scratch/$name.log" -f -o "$scratch/$name" "$@"
  grep -v '^==PROF== Profiling' "$scratch/$name.log"
  "$ncu" --import "$scratch/$name.ncu-rep" --csv --page raw --print-units base >"$results/$name.csv"
}

planted='regex:_(mild|severe)$'
{
  "$ncu" --version
  nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.max.sm,power.limit --format=csv
  part 60 times "$python" "$here/run.py" --launches 5 --json "$results/planted.json"
  profile 100 planted_severe -k "$planted" "$python" "$here/run.py" --variant severe
  profile 100 planted_mild -k "$planted" "$python" "$here/run.py" --variant mild
  profile 120 gemms --profile-from-start off "$python" "$here/gemms.py" \
    --json "$results/gemms.json"
  part 30 predictions "$python" "$here/predicted_counters.py" "$results/planted_severe.csv"
  ls -l "$results"
} 2>&1 | tee "$results/log.txt"
rm -rf "$scratch"
