# Format and lint. Sourced by ./dev.
# shellcheck shell=bash

cpp_files() { find src tests -name '*.cc' -o -name '*.h' | sort; }

# Debian's clang tools carry a version; formatting differs between versions, so the one of Debian 12 decides.
clang_tool() {
  if have "$1-14"; then echo "$1-14"; elif have "$1"; then echo "$1"; else die 1 "$1 14 is missing"; fi
}

cmd_fmt() {
  local mode=(-i)
  case ${1:-} in
    --check) mode=(--dry-run --Werror) ;;
    '') ;;
    *) die 2 "usage: ./dev fmt [--check]" ;;
  esac
  have clang-format-14 || ensure_packages clang-format
  cpp_files | xargs "$(clang_tool clang-format)" "${mode[@]}"
  if have rustfmt; then
    if [ "${mode[0]}" = -i ]; then rustfmt --edition 2021 rust/src/*.rs; else rustfmt --edition 2021 --check rust/src/*.rs; fi
  fi
}

# C++ files that differ from the last commit on the main line, or that the last commit touched.
changed_cpp_files() {
  if ! git rev-parse --quiet --verify HEAD >/dev/null 2>&1; then
    cpp_files
    return
  fi
  { git diff --name-only HEAD; git diff --name-only HEAD~1 HEAD 2>/dev/null || true; git ls-files --others --exclude-standard; } |
    sort -u | grep -E '^src/.*\.cc$' | while read -r file; do if [ -f "$file" ]; then echo "$file"; fi; done || true
}

lint_cpp() {
  local files
  if [ "$1" = all ]; then files=$(cpp_files | grep '\.cc$'); else files=$(changed_cpp_files); fi
  [ -n "$files" ] || { say "clang-tidy: no changed file"; return 0; }
  have clang-tidy-14 || ensure_packages clang-tidy
  ensure_build_tools
  [ -f build/release/compile_commands.json ] || cmake --preset release >&2
  say "clang-tidy: $(wc -l <<<"$files") files"
  python3 scripts/tidy.py --tool "$(clang_tool clang-tidy)" --build build/release --cache "$cache/tidy" \
    --jobs "$(jobs_for_machine)" $files
}

lint_python() { find scripts tests -name '*.py' -print0 | xargs -0 python3 -m py_compile; }

lint_shell() {
  have shellcheck || ensure_packages shellcheck
  shellcheck -x dev scripts/*.sh .ci/run
}

lint_rust() {
  if ! cargo clippy --version >/dev/null 2>&1; then
    say "cargo clippy is not installed: skipped"
    return 0
  fi
  CARGO_TARGET_DIR=$PWD/build/clippy cargo clippy --quiet --release --locked --manifest-path rust/Cargo.toml -- -D warnings
}

cmd_lint() {
  local scope=changed
  case ${1:-} in
    --all) scope=all ;;
    '') ;;
    *) die 2 "usage: ./dev lint [--all]" ;;
  esac
  lint_python
  lint_shell
  lint_cpp $scope
  ensure_rust
  lint_rust
  say "lint: nothing to say"
}
