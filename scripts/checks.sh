# Format and lint. Sourced by ./dev.
# shellcheck shell=bash

cpp_files() { find src include examples tests -name '*.cc' -o -name '*.h' | sort; }

# Debian's clang tools carry a version; formatting differs between versions, so the one of Debian 12 decides.
clang_tool() {
  if have "$1-14"; then echo "$1-14"; elif have "$1"; then echo "$1"; else die 1 "$1 14 is missing"; fi
}

# Files that the formatter would change.
unformatted_cpp() {
  local tool
  tool=$(clang_tool clang-format)
  # shellcheck disable=SC2016  # the inner shell expands it
  cpp_files | xargs -P "$(nproc)" -n 16 sh -c 'tool=$0; for file in "$@"; do "$tool" "$file" | cmp -s - "$file" || echo "$file"; done' "$tool"
}

cmd_fmt() {
  have clang-format-14 || ensure_packages clang-format
  case ${1:-} in
    '')
      cpp_files | xargs "$(clang_tool clang-format)" -i
      if have rustfmt; then rustfmt --edition 2021 rust/src/*.rs; fi
      ;;
    --check)
      local files
      files=$(unformatted_cpp)
      [ -z "$files" ] || die 1 "not formatted (./dev fmt does it):"$'\n'"$files"
      if have rustfmt; then rustfmt --edition 2021 --check rust/src/*.rs; fi
      ;;
    *) die 2 "usage: ./dev fmt [--check]" ;;
  esac
}

# All C++ sources, or those that find's conditions in the arguments leave; the cache makes a second run look only at what changed.
lint_cpp() {
  have clang-tidy-14 || ensure_packages clang-tidy
  configure release
  say "clang-tidy"
  find src examples tests -name '*.cc' "$@" -print0 | sort -z | xargs -0 -n 10000 python3 scripts/tidy.py --tool "$(clang_tool clang-tidy)" \
    --build build/release --cache "$cache/tidy" --jobs "$(jobs_for_machine)"
}

lint_python() { find scripts tests -name '*.py' -print0 | xargs -0 python3 -m py_compile; }

lint_shell() {
  have shellcheck || ensure_packages shellcheck
  shellcheck -x dev .ci/run scripts/arm64.sh scripts/bare_machine.sh scripts/draw_traces.sh \
    scripts/screenshots.sh  # -x reads what dev sources
}

lint_rust() {
  ensure_rust
  if ! cargo clippy --version >/dev/null 2>&1; then
    say "cargo clippy is not installed: skipped"
    return 0
  fi
  CARGO_TARGET_DIR=$PWD/build/clippy cargo clippy --quiet --release --locked --manifest-path rust/Cargo.toml -- -D warnings
}

# The page and its tests. Without node on the machine nothing is installed for it here; the test stage `web` does.
lint_web() {
  if ! node_is_new_enough; then
    say "no node: the page's JavaScript is not checked"
    return 0
  fi
  ensure_web_node
  GAPLESS_WEB_NODE=$web_node "$web_node/node_modules/.bin/eslint" --config tests/web/eslint.config.mjs --max-warnings 0 \
    --no-error-on-unmatched-pattern src/server/web tests/web
}

cmd_lint() {
  [ $# -eq 0 ] || die 2 "usage: ./dev lint"
  lint_files
}

# lint_files [CONDITIONS]: of find, on the C++ sources.
lint_files() {
  lint_python
  lint_shell
  lint_web
  lint_cpp "$@"
  lint_rust
  say "lint: nothing to say"
}
