# What has to be on the machine: Debian packages, Rust, a Python environment. Each ensure_* returns at once when it is there.
# Sourced by ./dev.
# shellcheck shell=bash

build_packages=(
  g++ cmake ninja-build ccache ca-certificates
  libboost1.81-dev libcli11-dev libfmt-dev libgtest-dev libspdlog-dev nlohmann-json3-dev
  python3 python3-venv
)
check_packages=(clang-format clang-tidy shellcheck)
rust_packages=(cargo-web rustc-web)
rust_minimum=1.87  # what the grammar library in rust/Cargo.lock asks for

venv=$cache/venv

# Installs the Debian packages named, or says how to.
ensure_packages() {
  have dpkg-query || return 0  # another system: CMake names what it does not find
  local installed missing=() package
  installed=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null | sed -n 's/^installed //p' || true)
  for package in "$@"; do
    grep -qxF -- "$package" <<<"$installed" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local as_root=()
  if [ "$(id -u)" != 0 ]; then
    if have sudo && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
      as_root=(sudo)
    else
      die 1 "these packages are missing; as root: apt-get update && apt-get install --no-install-recommends ${missing[*]}"
    fi
  fi
  say "installing ${missing[*]}"
  local apt=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q -o Dpkg::Use-Pty=0 -o Acquire::Retries=3)
  "${apt[@]}" update >&2 || say "apt-get update failed; trying with the lists that are here"
  "${apt[@]}" install -y --no-install-recommends "${missing[@]}" >&2 ||
    die 1 "apt-get could not install: ${missing[*]}"
}

rust_is_new_enough() {
  local found
  found=$(cargo --version 2>/dev/null | awk '{ print $2 }') || return 1
  [ -n "$found" ] && [ "$(printf '%s\n' "$rust_minimum" "$found" | sort -V | head -n 1)" = "$rust_minimum" ]
}

ensure_rust() {
  rust_is_new_enough && return 0
  [ -x "${HOME:-/root}/.cargo/bin/cargo" ] && PATH=${HOME:-/root}/.cargo/bin:$PATH && rust_is_new_enough && return 0
  have dpkg-query || die 1 "Rust $rust_minimum or newer is needed (cargo and rustc in PATH)"
  ensure_packages "${rust_packages[@]}"
  hash -r
  rust_is_new_enough || PATH=/usr/bin:$PATH
  rust_is_new_enough ||
    die 1 "Rust $rust_minimum is needed, this is $(cargo --version 2>&1); Debian's is in the bookworm-security suite"
}

ensure_build_tools() {
  ensure_packages "${build_packages[@]}"
  ensure_rust
}

# A Python environment outside the repository, for fetching models and for the tests.
ensure_venv() {
  [ -f "$venv/ready" ] && return 0
  if ! python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
    ensure_packages python3 python3-venv
  fi
  say "creating the Python environment $venv"
  mkdir -p "$cache"
  python3 -m venv --clear "$venv" >&2
  touch "$venv/ready"  # last: an interrupted run starts over
}

ensure_test_python() {
  ensure_venv
  local wanted=scripts/requirements-test.txt
  cmp -s "$wanted" "$venv/requirements-test.txt" && return 0
  say "installing the test clients (openai, pytest, ...)"
  "$venv/bin/pip" install --quiet --disable-pip-version-check --retries 5 --require-hashes --only-binary :all: -r "$wanted" >&2
  cp "$wanted" "$venv/requirements-test.txt"
}

# A Python with llama-cpp-python, whose tokenizer is the oracle of the full tier: sets llama_python. Built from source, about 12 minutes on 2 cores.
ensure_llama_python() {
  ensure_build_tools
  llama_python=$cache/venv-llama/bin/python
  [ -f "$cache/venv-llama/ready" ] && return 0
  say "building llama-cpp-python 0.3.36, the tokenizer to compare with (once, about 12 minutes)"
  python3 -m venv --clear "$cache/venv-llama" >&2
  printf '%s\n' 'llama-cpp-python==0.3.36 --hash=sha256:832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e' >"$cache/venv-llama/source.txt"
  "$llama_python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: --require-hashes \
    -d "$cache/venv-llama" -r "$cache/venv-llama/source.txt" >&2
  CMAKE_ARGS='-DLLAMA_BUILD_TOOLS=OFF -DLLAVA_BUILD=OFF' \
    "$llama_python" -m pip install --quiet --disable-pip-version-check "$cache"/venv-llama/llama_cpp_python-0.3.36.tar.gz >&2
  touch "$cache/venv-llama/ready"
}
