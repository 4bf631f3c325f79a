#!/bin/bash
# One plan on one GPU and on all visible ones: bash benchmarks/many_devices/campaign.sh RESULTS
#
# It prints how much faster several devices are, next to their number. The compile cache is filled by
# a first run that only verifies, so that both measured runs find the same.
set -euo pipefail
results=${1:?give a folder for the results}
mkdir -p "$results"
python=${PYTHON:-python3}
plan=(--providers torch,triton --dtypes bf16 --default-config --time-budget 0.5s
      --shapes 512x512x512,1024x1024x1024,1536x1536x1536,2048x2048x2048,2560x2560x2560,3072x3072x3072
      --shapes 1024x2048x1024,2048x1024x2048,1024x4096x1024,4096x1024x2048,2048x4096x1024,3072x1024x3072
      --generated-dir "$results" --format none --fresh)
gemmetry=("$python" -m gemmetry)

"${gemmetry[@]}" compile "${plan[@]}" --device cuda --experiment "$results/warm" > /dev/null || true
for devices in cuda:0 all; do
  start=$(date +%s.%N)
  "${gemmetry[@]}" profile "${plan[@]}" --device cuda:0 --devices "$devices" \
    --experiment "$results/${devices/:/-}" > "$results/${devices/:/-}.txt" 2>&1
  end=$(date +%s.%N)
  echo "$devices $start $end" | tee -a "$results/seconds.txt"
done
"$python" - "$results" <<'PYTHON'
import sys
from pathlib import Path

from gemmetry.engine.experiment import Experiment

results = Path(sys.argv[1])
lines = (results / "seconds.txt").read_text().split("\n")[-3:-1]
one, every = (float(line.split()[2]) - float(line.split()[1]) for line in lines)
with Experiment.open(results / "all") as experiment:
    devices = {identifier for record in experiment.records() for identifier in record.device_ids}
print(f"{len(devices)} GPUs: {every:.1f} s instead of {one:.1f} s, {one / every:.2f} times as fast as one; "
      f"{one / every / len(devices):.2f} of linear")
PYTHON
