#!/usr/bin/env bash
# bench/compare_llama_cpp.sh [FOLDER]: products of this program beside those of llama.cpp and oneDNN, in turns, on this machine.
# llama.cpp's ggml comes from the source package of llama-cpp-python on PyPI, oneDNN from Debian; both are built and kept in FOLDER
# (default: below the temporary folder), outside the tree. ISA=avx2 takes those kernels of ours; ROUNDS in turns, 3. Prints a table of
# medians; FOLDER/compare.json holds every product, FOLDER/peers-N.json and ours-N.json each round.
set -euo pipefail
root=$(cd "$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")/.." && pwd -P)
work=$(readlink -m "${1:-${TMPDIR:-/tmp}/deepinfer-compare}")
rounds=${ROUNDS:-3}
mkdir -p "$work"
cd "$work"
if [[ ! -d ggml-source ]]; then
  if [[ ! -f $(echo llama_cpp_python-*.tar.gz) ]]; then
    python3 -m venv venv
    venv/bin/pip install -q scikit-build-core pathspec  # pip asks a source package for its name before it keeps it
    venv/bin/pip download -q --no-deps --no-binary :all: --no-build-isolation llama-cpp-python
  fi
  mkdir -p unpacked && tar -xzf llama_cpp_python-*.tar.gz -C unpacked --strip-components=1
  mv unpacked/vendor/llama.cpp/ggml ggml-source
  touch ggml-source/ggml.pc.in  # the package leaves it out, the build wants it
fi
if [[ ! -x compare_peers ]]; then
  cmake -S ggml-source -B ggml-build -G Ninja -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=ON -DGGML_LLAMAFILE=ON -DGGML_OPENMP=OFF \
    -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF >cmake.log
  cmake --build ggml-build --target ggml >build.log
  dnnl=()
  [[ -f /usr/include/oneapi/dnnl/dnnl.hpp ]] && dnnl=(-DWITH_DNNL -ldnnl)
  g++ -std=c++20 -O2 "$root/bench/compare_peers.cc" -Iggml-source/include -o compare_peers \
    $(find ggml-build -name 'libggml.a') $(find ggml-build -name 'libggml-cpu.a') $(find ggml-build -name 'libggml-base.a') \
    -lpthread -ldl -lm "${dnnl[@]}"
fi
isa=${ISA:-$("$root/build/release/deepinfer" doctor | awk '$1 == "kernels" && $3 == "ok" { print $2; exit }')}
for ((i = 0; i < rounds; ++i)); do
  ./compare_peers >"peers-$i.json" 2>>ggml.log
  "$root/build/release/deepinfer" bench ops --json --repeats 1 --device "cpu:$isa" >"ours-$i.json"
done
python3 "$root/bench/compare_table.py" "$work" "$rounds"
