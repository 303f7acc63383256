#!/usr/bin/env bash
# Proves that the README's first command works on a machine with nothing on it: a new Debian 12 root in a folder, the committed files, and
# `./dev serve` until it answers. Needs root and debootstrap; takes about ten minutes on two cores and 5 GB. Prints how long each step took.
#
#   scripts/bare_machine.sh [--with-tests] [--keep] [--root FOLDER]
#
# The new root gets files of this machine, never its environment: the package source it uses, and its local CA certificates.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

with_tests=no keep=no target=
while [ $# -gt 0 ]; do
  case $1 in
    --with-tests) with_tests=yes ;;
    --keep) keep=yes ;;
    --root)
      target=$2
      shift
      ;;
    *)
      echo "usage: scripts/bare_machine.sh [--with-tests] [--keep] [--root FOLDER]" >&2
      exit 2
      ;;
  esac
  shift
done
[ "$(id -u)" = 0 ] || { echo "bare_machine: needs root (debootstrap, chroot)" >&2; exit 1; }
[ -n "$target" ] || target=$(mktemp -d "${TMPDIR:-/tmp}/gapless-bare.XXXXXX")

server=
begin=$SECONDS step_begin=$SECONDS
lap() {
  printf '%5d s  %s\n' $((SECONDS - step_begin)) "$1"
  step_begin=$SECONDS
}
cleanup() {
  [ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true
  [ $keep = yes ] || rm -rf --one-file-system "$target"
}
trap cleanup EXIT

# The first package source this machine itself uses: its file, and its address.
for source_file in /etc/apt/sources.list.d/debian.sources /etc/apt/sources.list; do
  if grep -qsE '^(URIs:|deb )' "$source_file"; then break; fi
done
mirror=$(sed -nE 's/^URIs: *([^ ]+).*/\1/p; s/^deb +(\[[^]]*\] +)?([^ ]+).*/\2/p' "$source_file" | head -n 1)

make_root() {
  command -v debootstrap >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends debootstrap; } >&2
  local messages
  messages=$(debootstrap --variant=minbase bookworm "$target" "$mirror" 2>&1) || { tail -n 20 <<<"$messages" >&2; exit 1; }
  case $source_file in
    *.sources)
      : >"$target/etc/apt/sources.list"
      cp "$source_file" "$target/etc/apt/sources.list.d/"
      ;;
    *) cp "$source_file" "$target/etc/apt/sources.list" ;;
  esac
  if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    mkdir -p "$target/usr/local/share/ca-certificates"
    cp /usr/local/share/ca-certificates/*.crt "$target/usr/local/share/ca-certificates/"
  fi
}

# Runs a command in the new root with an empty environment. The mounts live as long as the process.
in_root() {
  # shellcheck disable=SC2016  # the inner shell expands it
  exec unshare --mount --propagation private bash -c '
    root=$0
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    exec chroot "$root" env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
      sh -c "cd /gapless && exec \"\$@\"" sh "$@"' "$target" "$@"
}

# Asks the server, whose port is in the file; prints the answer's text.
ask() {
  python3 - "$target/gapless/port" <<'PY'
import json, sys, urllib.request
url = f"http://127.0.0.1:{open(sys.argv[1]).read().strip()}"
body = json.dumps({"messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16, "temperature": 0}).encode()
request = urllib.request.Request(url + "/v1/chat/completions", body, {"Content-Type": "application/json"})
answer = json.load(urllib.request.urlopen(request, timeout=60))
text = answer["choices"][0]["message"]["content"]
assert text.strip() and answer["usage"]["completion_tokens"] > 0, answer
print(text)
PY
}

is_ready() {
  [ -s "$target/gapless/port" ] || return 1
  python3 -c 'import sys, urllib.request; urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/ready", timeout=5)' \
    "$(cat "$target/gapless/port")" 2>/dev/null
}

make_root
lap "a new Debian 12 root ($(du -sm "$target" | cut -f 1) MB)"
mkdir "$target/gapless"
git archive HEAD | tar -x -C "$target/gapless"
lap "the committed files"

log=$target/serve.log
(in_root ./dev serve --port 0 --port-file /gapless/port) >"$log" 2>&1 </dev/null &
server=$!
while ! is_ready; do
  kill -0 "$server" 2>/dev/null || { tail -n 40 "$log" >&2; echo "bare_machine: ./dev serve ended" >&2; exit 1; }
  [ $((SECONDS - step_begin)) -lt 3600 ] || { tail -n 40 "$log" >&2; echo "bare_machine: not ready after an hour" >&2; exit 1; }
  sleep 1
done
lap "./dev serve, from nothing to ready"
echo "         answer: $(ask | head -n 1)"
tail -n 12 "$log" | sed 's/^/         /'
kill -TERM "$server"
wait "$server" || { echo "bare_machine: the server did not end with 0 after SIGTERM" >&2; exit 1; }
server=
lap "one request and a clean end"

rm -f "$target/gapless/port"
(in_root ./dev build) >"$log" 2>&1 </dev/null || { tail -n 40 "$log" >&2; exit 1; }
lap "./dev build again (nothing to do)"
if [ $with_tests = yes ]; then
  (in_root ./dev test) </dev/null || { echo "bare_machine: ./dev test failed" >&2; exit 1; }
  lap "./dev test"
fi
printf '%5d s  in all; %s MB\n' $((SECONDS - begin)) "$(du -sm "$target" | cut -f 1)"
