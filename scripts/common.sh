# What the scripts share. Sourced, never run.
# Sets root; moves there. JITUNE_HIDE_CUDA=1 makes everything act as if no CUDA Toolkit were installed.
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root" || exit 1
wheels_cuda=$root/.deps/cuda

say() { printf '\n== %s\n' "$*"; }
fail() {
  printf '%s: %s\n' "$(basename "$0")" "$*" >&2
  exit 1
}

# cuda_version DIR: the number in DIR's cuda.h, 13000 for instance; nothing when DIR lacks a header or NVRTC, or is
# older than CUDA 12.
cuda_version() {
  local include version library
  for include in "$1/include" "$1/targets/$(uname -m)-linux/include"; do
    [[ -r $include/cuda.h && -r $include/nvrtc.h && -r $include/cuda_fp16.h ]] || continue
    version=$(sed -n 's/^#define CUDA_VERSION \([0-9]*\).*/\1/p;/^#define CUDA_VERSION /q' "$include/cuda.h")
    [[ $version =~ ^[0-9]+$ && $version -ge 12000 ]] || continue
    for library in "$1"/lib64/libnvrtc.so* "$1"/lib/libnvrtc.so* "$1/lib/$(uname -m)-linux-gnu"/libnvrtc.so* \
      "$1/targets/$(uname -m)-linux/lib"/libnvrtc.so*; do
      if [[ -r $library ]]; then
        echo "$version"
        return
      fi
    done
  done
}

# cuda_include DIR: DIR's folder of headers.
cuda_include() {
  if [[ -r $1/include/nvrtc.h ]]; then echo "$1/include"; else echo "$1/targets/$(uname -m)-linux/include"; fi
}

# find_cuda: sets cuda_home to the toolkit that everything uses: the system's, else what setup unpacked from NVIDIA's
# wheels, else nothing. Exports CUDA_HOME when it is the unpacked one, so that jitune finds its NVRTC.
find_cuda() {
  local candidate candidates=()
  cuda_home=
  if [[ ${JITUNE_HIDE_CUDA:-} != 1 ]]; then
    candidates=("${CUDA_HOME:-}" "${CUDA_PATH:-}" /usr/local/cuda)
    while IFS= read -r candidate; do candidates+=("$candidate"); done \
      < <(compgen -G '/usr/local/cuda-*' | sort -rV)
    candidates+=(/usr)
  fi
  for candidate in "${candidates[@]}" "$wheels_cuda"; do
    if [[ -n $candidate && -n $(cuda_version "$candidate") ]]; then
      cuda_home=$candidate
      break
    fi
  done
  [[ ${JITUNE_HIDE_CUDA:-} != 1 ]] || unset CUDA_HOME CUDA_PATH JITUNE_NVRTC
  if [[ $cuda_home == "$wheels_cuda" ]]; then export CUDA_HOME=$cuda_home; fi
}

# build_jobs: as many compilers as there are cores, fewer where memory is short (0.8 GB each).
build_jobs() {
  local by_memory cores
  by_memory=$(awk '/^MemAvailable:/ {print int($2 / 800000)}' /proc/meminfo)
  cores=$(nproc)
  ((by_memory >= 1)) || by_memory=1
  echo $((by_memory < cores ? by_memory : cores))
}
