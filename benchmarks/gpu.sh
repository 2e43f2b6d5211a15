#!/usr/bin/env bash
# The benchmarks on a GPU: bash benchmarks/gpu.sh [eager,inductor,thunder]
set -euo pipefail
cd "$(dirname "$0")/.."
compilers=${1:-eager,inductor,thunder}
for program in calls step memory; do
  python "benchmarks/$program.py" --device cuda --compilers "$compilers"
done
