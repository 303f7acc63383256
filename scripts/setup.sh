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
node_minimum=18  # Debian 12's

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

# create_venv FOLDER: the file `ready` is written last, so that an interrupted run starts over.
create_venv() {
  [ -f "$1/ready" ] && return 0
  if ! python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
    ensure_packages python3 python3-venv
  fi
  say "creating the Python environment $1"
  mkdir -p "$cache"
  python3 -m venv --clear "$1" >&2
  touch "$1/ready"
}

# install_pinned FOLDER REQUIREMENTS [PIP FLAGS...]: once for each version of the list.
install_pinned() {
  local folder=$1 wanted=$2
  shift 2
  create_venv "$folder"
  cmp -s "$wanted" "$folder/requirements.txt" && return 0
  say "installing $(grep -c == "$wanted") Python packages of $wanted"
  "$folder/bin/pip" install --quiet --disable-pip-version-check --retries 5 --require-hashes "$@" -r "$wanted" >&2
  cp "$wanted" "$folder/requirements.txt"
}

# Outside the repository: for fetching models, and for the tests.
ensure_venv() { create_venv "$venv"; }
ensure_test_python() { install_pinned "$venv" scripts/requirements-test.txt --only-binary :all:; }

# llama-cpp-python, whose tokenizer is the oracle of the full tier: sets llama_python. Built from source, about 12 minutes on 2 cores.
ensure_llama_python() {
  ensure_build_tools
  llama_python=$cache/venv-llama/bin/python
  CMAKE_ARGS='-DLLAMA_BUILD_TOOLS=OFF -DLLAVA_BUILD=OFF' install_pinned "$cache/venv-llama" scripts/requirements-oracle.txt
}

# sglang-router, which the full tier puts in front of two servers: sets router_python.
ensure_router_python() {
  router_python=$cache/venv-router/bin/python
  install_pinned "$cache/venv-router" scripts/requirements-router.txt --only-binary :all:
}

# Clients of other people, for the full tier's tests: sets clients to the folder with an environment for each.
ensure_clients() {
  clients=$cache/clients
  local name
  for name in lm-eval guidellm aiperf; do install_pinned "$clients/$name" "scripts/requirements-$name.txt" --no-deps; done
  if (ensure_node); then
    install_npm tests/clients/openai "$clients/openai-node"
  else
    say "no test of OpenAI's JavaScript client"
  fi
}

node_is_new_enough() {
  local found
  found=$(node --version 2>/dev/null) && have npm || return 1
  found=${found#v}
  [ "${found%%.*}" -ge "$node_minimum" ]
}

# Runs the page's tests and other people's JavaScript; what is built and served needs none.
ensure_node() {
  node_is_new_enough && return 0
  ensure_packages nodejs npm
  hash -r
  node_is_new_enough || die 1 "node $node_minimum or newer and npm are needed, this is $(node --version 2>&1)"
}

# install_npm SOURCE FOLDER: the packages that SOURCE/package-lock.json pins, once for each version of the list.
install_npm() {
  local source=$1 folder=$2
  cmp -s "$source/package-lock.json" "$folder/installed-lock.json" && return 0
  say "installing the JavaScript packages of $source"
  mkdir -p "$folder"
  cp "$source/package.json" "$source/package-lock.json" "$folder"
  npm ci --prefix "$folder" --no-audit --no-fund --ignore-scripts >&2
  cp "$source/package-lock.json" "$folder/installed-lock.json"
}

# For the page's tests and lint: sets web_node to the folder with their packages.
ensure_web_node() {
  ensure_node
  web_node=$cache/web-node
  install_npm tests/web "$web_node"
}

# Prints the path of the browser for the page's tests.
find_chromium() { command -v chromium || command -v chromium-browser || command -v google-chrome; }

ensure_chromium() {
  find_chromium >/dev/null && return 0
  ensure_packages chromium
  hash -r
  find_chromium >/dev/null || die 1 "Chromium is needed for the page's tests (chromium in PATH)"
}
