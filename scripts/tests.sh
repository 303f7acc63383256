# The test suite: stages that run one after another, each whether or not an earlier one failed. Sourced by ./dev.
# shellcheck shell=bash

quick_stages=(static fmt lint unit api web asan tsan)
full_stages=(lint_full unit_full api_full asan_full clang arm64 bare_machine)
skipped=77  # what a stage returns when this machine lacks what it needs, having said what

results=build/test-results

# The tests that the sanitizers run in the quick tier: those whose code shares memory between threads, and those that read bytes of strangers.
asan_tests=(kernels_test model_test scheduler_test engine_test server_test server_format_test)
tsan_tests=(base_test device_test worker_test scheduler_test overlap_equality_test engine_test server_test)

python_tests() {
  local name=$1
  shift
  ensure_test_python
  "$venv/bin/python" -m pytest -q -p no:cacheprovider --junitxml="$results/$name.xml" "$@"
}

# ctest of a preset, a program on each core; each GoogleTest program leaves its counts in $results.
run_ctest() {
  local preset=$1
  shift
  GTEST_OUTPUT="xml:$PWD/$results/$preset/" GTEST_BRIEF=1 \
    ctest --test-dir "build/$preset" --parallel "$(jobs_for_machine)" --output-on-failure --no-tests=error "$@"
}

# The random workloads of the full tier: the number is per test.
export_full() {
  export GAPLESS_FULL=1 GAPLESS_EQUALITY_WORKLOADS=256 GAPLESS_EQUALITY_CROWD=200 GAPLESS_WORKLOADS=50000
  export_models
}

# What the tests on real models are told: where the program and the models are.
export_models() {
  export GAPLESS_BINARY=$PWD/build/release/gapless
  GAPLESS_SMOLLM2=$(cmd_model smollm2)
  GAPLESS_GEMMA3=$(cmd_model gemma3)
  export GAPLESS_SMOLLM2 GAPLESS_GEMMA3
}

any_of() {
  local IFS='|'
  echo "^($*)\$"
}

stage_static() { python_tests static tests/layers_test.py tests/hygiene_test.py tests/docs_test.py; }
stage_fmt() { cmd_fmt --check; }
# The program's own sources: clang-tidy takes seconds for a file, and there are as many of tests.
stage_lint() { lint_files -not -name '*_test.cc' -not -path '*testing*'; }
stage_lint_full() { cmd_lint; }

stage_unit() {
  build_targets release all
  export_models
  run_ctest release -L 'quick|model' -E '^equality_model_test$'
}

stage_api() {
  build_targets release gapless
  export_models
  python_tests api tests/api -m 'not full'
}

web_test_files() { find tests/web -name '*.test.mjs' | sort; }

# web_tests [FLAGS OF NODE] FILES: one file after another, because each starts servers and a browser. Prints what failed.
web_tests() {
  GAPLESS_WEB_NODE=$web_node GAPLESS_CHROMIUM=$(find_chromium) node --test --test-concurrency 1 \
    --test-reporter spec --test-reporter-destination stdout --test-reporter junit --test-reporter-destination "$results/web.xml" "$@"
}

# The page in src/server/web: its modules, and the whole of it in a browser before real servers.
stage_web() {
  if ! (ensure_node && ensure_chromium); then
    say "the page's tests need node and Chromium"
    return $skipped
  fi
  ensure_web_node
  build_targets release gapless
  export_models
  local files
  mapfile -t files < <(web_test_files)
  web_tests "${files[@]}"
}

# Instrumented code is 10 times slower, so fewer random workloads.
sanitized() {
  local preset=$1
  shift
  build_targets "$preset" "$@"
  export GAPLESS_WORKLOADS=150 GAPLESS_EQUALITY_WORKLOADS=4
  run_ctest "$preset" -R "$(any_of "$@")"
}

stage_asan() { sanitized asan "${asan_tests[@]}"; }
stage_tsan() {
  export TSAN_OPTIONS=suppressions=$PWD/scripts/tsan-suppressions.txt
  sanitized tsan "${tsan_tests[@]}"
}

stage_unit_full() {
  build_targets release all
  export_full
  run_ctest release -L 'quick|model|full'
}

stage_api_full() {
  build_targets release gapless
  export_full
  ensure_llama_python
  ensure_router_python
  ensure_clients
  export GAPLESS_LLAMA_PYTHON=$llama_python GAPLESS_ROUTER_PYTHON=$router_python GAPLESS_CLIENTS=$clients
  python_tests api_full tests/api
}

stage_asan_full() {
  build_targets asan all
  export_full
  run_ctest asan -L 'quick|model|full'
}

# The other compiler's program: it builds without a warning, passes its tests and gives the same answers, bit for bit.
stage_clang() {
  if ! have clang++; then
    say "no clang++ on this machine (Debian's package is clang)"
    return $skipped
  fi
  build_targets release gapless
  build_targets clang all
  export_models
  run_ctest clang -L quick
  local gcc clang
  gcc=$(build/release/gapless selftest "$GAPLESS_SMOLLM2")
  clang=$(build/clang/gapless selftest "$GAPLESS_SMOLLM2")
  printf '%s\n' "gcc:   $gcc" "clang: $clang"
  [ "$gcc" = "$clang" ]
}

stage_arm64() { scripts/arm64.sh; }
stage_bare_machine() { scripts/bare_machine.sh; }

# Runs a stage in its own shell, so that a failure inside it ends the stage and not the suite.
run_stage() {
  local name=$1 begin=$SECONDS status
  say "test stage: $name"
  set +e
  (
    set -e
    "stage_$name"
  )
  status=$?
  set -e
  if [ $status -eq 0 ]; then
    stage_lines+=("ok      $name  $((SECONDS - begin)) s")
  elif [ $status -eq $skipped ]; then
    stage_lines+=("skipped $name  (the reason is above)")
  else
    stage_lines+=("FAILED  $name  $((SECONDS - begin)) s (exit $status)")
    failed_stages=$((failed_stages + 1))
  fi
}

# Tests by name, in whichever program they are.
stage_named() {
  build_targets release all
  export_models
  local found=no
  if ctest --test-dir build/release -N -R "$filter" | grep -q 'Test *#'; then
    run_ctest release -R "$filter"
    found=yes
  fi
  if grep -rqE --include='*.py' "$filter" tests/api; then
    python_tests named tests/api -k "$filter"
    found=yes
  fi
  local pages
  mapfile -t pages < <(web_test_files | xargs grep -lE "test\(.*($filter)")
  if [ ${#pages[@]} -gt 0 ]; then
    ensure_web_node
    ensure_chromium
    web_tests --test-name-pattern "$filter" "${pages[@]}"
    found=yes
  fi
  [ $found = yes ] || die 2 "no stage and no test is called '$filter' (./dev test --list)"
}

list_tests() {
  echo "stages:      ${quick_stages[*]}"
  echo "with --full: ${full_stages[*]}"
  if [ -f build/release/build.ninja ]; then ctest --test-dir build/release -N | sed -n 's/^ *Test *#[0-9]*: /test program: /p'; fi
}

is_stage() {
  local stage
  for stage in "${quick_stages[@]}" "${full_stages[@]}"; do [ "$stage" != "$1" ] || return 0; done
  return 1
}

cmd_test() {
  local stages=("${quick_stages[@]}") chosen=()
  filter=
  while [ $# -gt 0 ]; do
    case $1 in
      --full) stages=("${quick_stages[@]}" "${full_stages[@]}") ;;
      --list)
        list_tests
        return
        ;;
      -*) die 2 "usage: ./dev test [--full] [--list] [STAGE...|FILTER]" ;;
      *) if is_stage "$1"; then chosen+=("$1"); else filter=$1; fi ;;
    esac
    shift
  done
  [ ${#chosen[@]} -eq 0 ] || stages=("${chosen[@]}")
  [ -z "$filter" ] || stages=(named)
  run_stages "${stages[@]}"
}

run_stages() {
  stage_lines=()
  failed_stages=0
  rm -rf "$results"
  mkdir -p "$results"
  local begin=$SECONDS stage
  ensure_packages "${build_packages[@]}" "${check_packages[@]}"
  for stage in "$@"; do run_stage "$stage"; done
  echo
  printf '%s\n' "${stage_lines[@]}" "total: $((SECONDS - begin)) s"
  python3 scripts/test_summary.py "$results" --stages $# --failed-stages "$failed_stages"
}
