#!/usr/bin/env bash
# Builds thunder against the torch that is installed (no network), then tests and measures it on the GPU:
#   bash benchmarks/gpu.sh [build] [test] [bench] [cpu] [sanitize]       without arguments: build test bench
# `sanitize` runs fused kernels under $SANITIZER, by default the compute-sanitizer on the path.
# Wheels that the machine lacks (tbb, tbb-devel, tcmlib) are taken from $WHEELS, default .whl/ of the checkout.
# Results go to $OUT, default benchmarks/results/.
set -euo pipefail
cd "$(dirname "$0")/.."
source=$PWD
wheels=${WHEELS:-$source/.whl}
out=${OUT:-$source/benchmarks/results}
export PYTHONUNBUFFERED=1
compilers=${COMPILERS:-eager,inductor,thunder}

build() {
  local install=(python3 -m pip install --quiet --no-deps --no-index --no-cache-dir)
  "${install[@]}" "$wheels"/*.whl
  CMAKE_BUILD_PARALLEL_LEVEL=$(nproc) "${install[@]}" --no-build-isolation .
}

copy_tests() { # elsewhere, so that the installed package is what is tested
  mkdir -p /tmp/thunder-tests
  cp -r tests docs examples benchmarks /tmp/thunder-tests
}

tests() {
  copy_tests
  (cd /tmp/thunder-tests && python3 -m pytest -q -n 8 -p no:cacheprovider tests/python "$@")
}

sanitize() {
  local tool
  copy_tests
  for tool in memcheck racecheck; do
    # Without PyTorch's cache of memory, each tensor ends where its allocation does.
    (cd /tmp/thunder-tests && PYTORCH_NO_CUDA_MEMORY_CACHING=1 "${SANITIZER:-compute-sanitizer}" --tool "$tool" \
      --target-processes all --kernel-regex kns=fused --log-file "$out/$tool.%p.log" \
      python3 -m pytest -q -n 8 -p no:cacheprovider -m gpu tests/python/test_cuda_fusions.py tests/python/test_losses.py)
    grep -h "SUMMARY" "$out/$tool".*.log
  done
}

bench() { # device, further options
  local device=$1
  shift
  for program in calls step memory; do
    (cd /tmp && timeout 240 python3 "$source/benchmarks/$program.py" --device "$device" --compilers "$compilers" \
      --json "$out/$program-$device${SUFFIX:-}.json" "$@") || echo "$program: failed"
  done
}

for what in "${@:-build test bench}"; do
  for step in $what; do
    echo "== $step"
    case $step in
      build) time build ;;
      test) tests || echo "tests: failed" ;;
      bench) bench cuda ;;
      sanitize) sanitize ;;
      cpu)
        SUFFIX=-2 bench cpu --threads 2
        SUFFIX=-8 bench cpu --threads 8
        ;;
      *) echo "gpu.sh: expected build, test, bench, cpu or sanitize, got $step" >&2 && exit 2 ;;
    esac
  done
done
