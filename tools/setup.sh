# Sourced by deepinfer.sh, build.sh and test.sh: installs missing packages and builds presets. A ready machine does no apt work.
# REQUIRES: `root` is the folder of the repository.

# ccache and others want a home; a bare service account may have none.
export HOME="${HOME:-$root/.cache/home}"
# A clone in another folder finds what was compiled here.
export CCACHE_BASEDIR="$root" CCACHE_NOHASHDIR=1
export CLICOLOR_FORCE=0
jobs=$(nproc 2>/dev/null || echo 2)

say() { printf '%s\n' "deepinfer: $*" >&2; }
stop() { say "$*"; exit 1; }

missing_packages() {
  local package rest
  while read -r package rest; do
    [[ -z $package || $package == \#* ]] && continue
    if [[ $package == ci ]]; then
      [[ ${ci:-0} == 1 ]] || continue
      package=$rest
    fi
    [[ $(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null) == installed ]] || echo "$package"
  done < "$root/tools/packages.txt"
}

install_missing() {
  if ! command -v dpkg-query >/dev/null; then
    local tool
    for tool in g++ cmake ninja pkg-config python3; do
      command -v "$tool" >/dev/null || stop "$tool is missing and this is not Debian: install the equivalents of tools/packages.txt"
    done
    return
  fi
  local packages as_root=()
  packages=$(missing_packages | tr '\n' ' ')
  [[ -z $packages ]] && return
  command -v apt-get >/dev/null || stop "missing packages, but apt-get is not available; install: $packages"
  if [[ $(id -u) != 0 ]]; then
    command -v sudo >/dev/null || stop "missing packages, but neither root nor sudo; ask an administrator to install: $packages"
    as_root=(sudo)
  fi
  say "installing $packages"
  mkdir -p "$root/build"
  local log=$root/build/setup.log
  if ! { "${as_root[@]}" apt-get update -qq &&
         "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $packages; } >"$log" 2>&1; then
    tail -n 20 "$log" >&2
    stop "apt-get failed (log: $log); install by hand and run this again: $packages"
  fi
}

# build_preset PRESET TARGET...: configures and builds into build/PRESET; output only on a terminal or when it fails.
build_preset() {
  local preset=$1 folder=$root/build/$1 log=$root/build/$1.log
  shift
  mkdir -p "$root/build"
  # A build folder that came along with a moved or copied tree is useless.
  if [[ -f $folder/CMakeCache.txt ]] && ! grep -qxF "CMAKE_HOME_DIRECTORY:INTERNAL=$root" "$folder/CMakeCache.txt"; then
    rm -rf "$folder"
  fi
  [[ -f $folder/build.ninja ]] || say "building $preset (the first time takes some minutes)"
  if ! (cd "$root" && cmake --preset "$preset") >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    say "configuring $preset failed (log: $log)"
    return 1
  fi
  if [[ -t 2 ]]; then
    cmake --build "$folder" -j "$jobs" --target "$@" >&2
  elif ! cmake --build "$folder" -j "$jobs" --target "$@" >>"$log" 2>&1; then
    grep -nE -A 12 'error|FAILED' "$log" | head -n 60 >&2
    say "building $preset failed (log: $log)"
    return 1
  fi
}

# python_with LIST: a Python environment in .cache/ with the packages of tools/LIST.txt, made again when that file changes;
# prints its python.
python_with() {
  local list=$root/tools/$1.txt folder=$root/.cache/$1 log=$root/build/$1.log
  if ! cmp -s "$list" "$folder/installed.txt"; then
    say "installing the Python packages of tools/$1.txt"
    rm -rf "$folder"
    mkdir -p "$root/.cache" "$root/build"
    if ! { python3 -m venv "$folder" && "$folder/bin/python" -m pip install -q --disable-pip-version-check -r "$list"; } >"$log" 2>&1; then
      tail -n 20 "$log" >&2
      say "the Python environment could not be made (log: $log)"
      return 1
    fi
    cp "$list" "$folder/installed.txt"
  fi
  echo "$folder/bin/python"
}
