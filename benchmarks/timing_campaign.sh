#!/bin/sh
# The proofs of timing (docs/measurement.md, section "Proof"), in parts of 4 to 9 minutes on
# an H200. The second and the third each profile the dispatches of repeatability.yaml, so run them on
# different machines of one kind, or an hour apart:
#
#   sh benchmarks/timing_campaign.sh first RESULTS
#   sh benchmarks/timing_campaign.sh second RESULTS    # needs RESULTS/planted.json of the first
#   sh benchmarks/timing_campaign.sh third RESULTS
#   sh benchmarks/timing_campaign.sh processes RESULTS
#   sh benchmarks/timing_campaign.sh cpu RESULTS       # about 20 minutes; nothing else may run
#   tar xzf RESULTS/repeat-second.tgz; tar xzf RESULTS/repeat-third.tgz
#   python benchmarks/repeatability.py repeat-second repeat-third
#
# Each proof has a limit of its own, so that one that hangs does not cost the others. PYTHON and
# DEVICE may be set. Text goes to RESULTS/<part>.md, all findings go to JSON files next to it.
set -u
part=$1 results=$2
python=${PYTHON:-python3} device=${DEVICE:-cuda:0}
here=$(dirname "$0")
scratch=$(mktemp -d)
mkdir -p "$results"

proof() { # LIMIT_S SCRIPT NAME [ARGUMENT...]
  limit=$1 script=$2 name=$3
  shift 3
  began=$(date +%s)
  echo "== $name"
  timeout "$limit" "$python" "$here/$script.py" --device "$device" --json "$scratch/$name.json" \
    --experiment "$scratch/$name" "$@" || echo "$name ended with status $?"
  echo "== $name took $(($(date +%s) - began)) s"
  test ! -f "$scratch/$name.json" || cp "$scratch/$name.json" "$results/"
}

repeat() {
  began=$(date +%s)
  timeout 150 "$python" -m gemmetry profile --spec "$here/repeatability.yaml" --device "$device" \
    --experiment "$scratch/repeat-$part" --format md
  echo "== repeat-$part took $(($(date +%s) - began)) s"
  tar czf "$results/repeat-$part.tgz" -C "$scratch" --exclude references "repeat-$part"
}

{
  case $part in
  first)
    proof 330 planted_slowdown planted --groups 40 --shape 8192x8192x8192 \
      --time-budget 2s --interval-width 0.0005
    proof 220 planted_slowdown planted-f32 --groups 50 --shape 4096x4096x4096 --dtype f32 \
      --time-budget 2s
    ;;
  second)
    repeat
    proof 390 aa_test aa --pairs 312 --shapes 1024x1024x1024,4096x4096x4096,16x8192x8192
    proof 170 rivals rivals --planted "$results/planted.json" --pairs 60 --rival-pairs 40
    ;;
  third)
    repeat
    proof 300 method_table method --time-budget 1s
    ;;
  processes)
    proof 170 aa_test aa-processes --pairs 120 --processes 3 \
      --shapes 1024x1024x1024,4096x4096x4096,16x8192x8192
    proof 260 planted_slowdown planted-f32-processes --groups 60 --shape 4096x4096x4096 \
      --dtype f32 --time-budget 2s --processes 3
    proof 160 planted_slowdown planted-processes --groups 10 --shape 8192x8192x8192 \
      --time-budget 2s --interval-width 0.0005 --processes 3
    ;;
  cpu)
    device=cpu
    proof 900 aa_test aa-cpu --shapes 256x256x256,512x512x512,1x4096x4096
    proof 900 planted_slowdown planted-cpu --groups 100 --shape 512x512x512 --target 0.05 \
      --time-budget 1s --interval-width 0.005
    proof 900 rivals rivals-cpu --planted "$results/planted-cpu.json" --shape 512x512x512
    proof 600 method_table method-cpu --shapes 256x256x256,512x512x512,1x4096x4096
    ;;
  *)
    echo "the part is first, second, third, processes or cpu, not $part" >&2
    exit 2
    ;;
  esac
} 2>&1 | tee "$results/$part.md"
rm -rf "$scratch"
