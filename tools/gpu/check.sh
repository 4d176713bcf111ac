#!/usr/bin/env bash
# tools/gpu/check.sh [OUT [GOLDEN...]]: what this tree's CUDA backend is worth on the GPU of this machine. Run from anywhere in an unpacked tree
# that carries build/gpu (tools/gpu/pack.sh); needs a driver, and nvcc for the last part. Each part's output goes to OUT/PART.txt,
# one line per part to standard output; a part that fails does not stop the others. GOLDEN are further golden folders.
set -uo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/../.." && pwd -P)
cd "$root" || exit 1
out=${1:-build/gpu/out}
goldens=("${@:2}")
mkdir -p "$out"
bin=build/gpu
parts=0 failed=0

# part NAME SECONDS COMMAND...
part() {
  local name=$1 limit=$2 begin=$SECONDS code
  shift 2
  timeout "$limit" "$@" >"$out/$name.txt" 2>&1
  code=$?
  parts=$((parts + 1))
  ((code == 0)) || failed=$((failed + 1))
  printf '%-24s %-8s %4d s   %s\n' "$name" "$( ((code == 0)) && echo ok || echo "FAILED $code")" $((SECONDS - begin)) \
    "$(grep -v '^\s*$' "$out/$name.txt" | tail -1 | cut -c1-105)"
}

nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm --format=csv,noheader 2>/dev/null | tee "$out/machine.txt"
model=models/tiny-v41
# The shipped model's goldens name its folder by a link, which not every copy of a tree keeps.
shipped=$bin/golden-tiny-v41
mkdir -p "$shipped"
ln -sfn "$root/$model" "$shipped/tiny-v41"
cp -r tests/golden/model-tiny-v41/golden "$shipped/"
part build-configure 60 cmake -G Ninja -S . -B "$bin/kernels" -DCMAKE_BUILD_TYPE=Release -DDEEPINFER_KERNELS_ONLY=ON -DDEEPINFER_CUDA_ARCHITECTURES=90a
part build 200 cmake --build "$bin/kernels"
part conformance 300 $bin/test_conformance --gtest_brief=1 '--gtest_filter=*cuda*:*portable*'
part golden 200 $bin/deepinfer golden tests/golden/model $shipped "${goldens[@]}" --device cuda:0
part golden-portable 200 $bin/deepinfer golden tests/golden/model $shipped --device cuda:0:portable
part run 60 $bin/deepinfer run -m $model --device cuda:0 --temperature 0 --stats "What is 12 + 30?"
part run-cpu 60 $bin/deepinfer run -m $model --temperature 0 --stats "What is 12 + 30?"
part determinism 200 $bin/deepinfer verify determinism --quick -m $model --device cuda:0
part determinism-portable 200 $bin/deepinfer verify determinism --quick -m $model --device cuda:0:portable
part bench-ops 100 $bin/deepinfer bench ops --device cuda:0
part bench-ops-portable 100 $bin/deepinfer bench ops --device cuda:0:portable
part bench-decode-tiny 100 $bin/deepinfer bench decode -m $model --device cuda:0 --tokens 64
part bench-decode-random 200 $bin/deepinfer bench decode -m 'random:v41?layers=4' --device cuda:0 --tokens 32
part bench-prefill-random 200 $bin/deepinfer bench prefill -m 'random:v41?layers=4' --device cuda:0
part bench-cache 120 $bin/deepinfer bench cache -m 'random:v41?layers=4' --device cuda:0 --store "$bin/store"
part bench-engine 120 $bin/deepinfer bench engine -m $model --device cuda:0
part eager 60 $bin/deepinfer run -m $model --device cuda:0:eager --temperature 0 --stats "What is 12 + 30?"
part bench-decode-eager 100 $bin/deepinfer bench decode -m $model --device cuda:0:eager --tokens 64
part memcheck 120 compute-sanitizer --tool memcheck --error-exitcode 9 $bin/deepinfer run -m $model --device cuda:0 --max-tokens 4 "2 + 2"
# The race checker does not follow recorded steps, and slows each kernel some hundred times: the kernels with barriers.
for test in Conformance.Routing Conformance.NormsAndStreams ConformanceCache.RingsPoolsAndEntries ConformanceCache.Select \
  ConformanceProducts.Matmul ConformanceProducts.GroupedMatmul; do
  part "racecheck-${test#*.}" 240 compute-sanitizer --tool racecheck --error-exitcode 9 $bin/test_conformance "--gtest_filter=*$test/eager"
done
echo "$((parts - failed)) passed, $failed failed"
((failed == 0))
