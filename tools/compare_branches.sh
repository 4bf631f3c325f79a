#!/usr/bin/env bash
# Time the checkout and its base in turn, and compare them: the main step of action.yml.
#
# Variables: PYTHON, BASE, RUNS, THRESHOLD, and TESTS (arguments of pytest) or SPEC (a file for
# `gemmetry profile`); RUNNER_TEMP and GITHUB_STEP_SUMMARY as a runner sets them.
set -euo pipefail

fail() {
  echo "::error::$1" >&2
  exit 2
}

[ -n "${TESTS:-}" ] || [ -n "${SPEC:-}" ] || fail "name tests or a spec"
[[ "${RUNS:-8}" =~ ^[1-9][0-9]*$ ]] || fail "runs is '${RUNS}', not a number of runs"
[ -n "${BASE:-}" ] || fail "there is no base to compare with: set the input base"
head="$PWD"
files="$(mktemp -d "${RUNNER_TEMP:-/tmp}/gemmetry-XXXXXX")"
base="$files/base"
git rev-parse --quiet --verify "$BASE^{commit}" >/dev/null ||
  git fetch --quiet --depth=1 origin "$BASE" ||
  fail "$BASE is not in this checkout and cannot be fetched"
commit="$(git rev-parse --verify --quiet "$BASE^{commit}" || git rev-parse FETCH_HEAD)"
git worktree add --quiet --detach "$base" "$commit"
trap 'git -C "$head" worktree remove --force "$base"' EXIT

# timed SIDE FOLDER NUMBER: one run of one side. A base without these tests has no times.
timed() {
  local side=$1 number=$3 status=0
  cd "$2"
  if [ -n "${TESTS:-}" ]; then
    # Words of TESTS are arguments, as on a command line.
    eval "set -- $TESTS"
    local file="$files/$side-$number.json"
    "$PYTHON" -m pytest -q -p no:cacheprovider "$@" --kernel-benchmark-json "$file" || status=$?
    if [ "$side" = base ] && ((status == 4 || status == 5)); then # pytest: nothing to run
      echo '{"benchmarks": []}' >"$file"
    elif ((status)); then
      fail "pytest ended with status $status on $side"
    fi
  else
    "$PYTHON" -m gemmetry profile --spec "$SPEC" --experiment "$files/$side-$number" \
      -o "$files/$side-$number.json"
  fi
  cd "$head"
}

for number in $(seq 1000 $((999 + ${RUNS:-8}))); do
  # The order alternates too, so that neither side is always the one on the warmer card.
  if ((number % 2)); then
    timed head "$head" "$number"
    timed base "$base" "$number"
  else
    timed base "$base" "$number"
    timed head "$head" "$number"
  fi
done
"$PYTHON" -m gemmetry.judge.contest --before "$files"/base-*.json --after "$files"/head-*.json \
  --threshold "${THRESHOLD:-0.02}" --summary "${GITHUB_STEP_SUMMARY:-/dev/null}"
