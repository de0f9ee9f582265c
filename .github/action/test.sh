#!/usr/bin/env bash
# Tests gate.sh with a program that stands in for fit-check, and one for `gh`.
set -euo pipefail
cd "$(dirname "$0")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/name/bin" "$work/bin" "$work/temp"
# It prints its arguments, one a line, and ends with the status that the first of them is.
cat >"$work/name/bin/fit-check" <<'PROGRAM'
#!/bin/sh
printf '<%s>\n' "$@"
[ "$1" = 2 ] && echo "error: unknown model" >&2
exit "$1"
PROGRAM
# shellcheck disable=SC2016 # its own variables
printf '#!/bin/sh\necho "$@" >>%s/commented\n' "$work" >"$work/bin/gh"
chmod +x "$work/name/bin/fit-check" "$work/bin/gh"
tar --create --gzip --file "$work/archive.tar.gz" --directory "$work" name
checksum=$(sha256sum "$work/archive.tar.gz")

# gate ARGUMENTS [ARCHIVE [CHECKSUM [PULL REQUEST]]]: sets `said` and `status`.
gate() {
  rm -f "$work/output" "$work/summary" "$work/commented"
  said=$(RUNNER_TEMP=$work/temp GITHUB_OUTPUT=$work/output GITHUB_STEP_SUMMARY=$work/summary PATH=$work/bin:$PATH \
    FIT_CHECK_ARGUMENTS=$1 FIT_CHECK_ARCHIVE=${2:-$work/archive.tar.gz} FIT_CHECK_SHA256=${3:-$checksum} \
    FIT_CHECK_COMMENT=${4:-} ./gate.sh 2>&1) && status=0 || status=$?
}

passed=0
# expect STATUS TEXT: of the last gate.
expect() {
  if [ "$status" != "$1" ] || [[ $said != *"$2"* ]]; then
    printf 'expected status %s and "%s"; it ended with %s and said:\n%s\n' "$1" "$2" "$status" "$said" >&2
    exit 1
  fi
  passed=$((passed + 1))
}

gate "0 --gpu l4"
expect 0 "### fit-check: fits"
grep --quiet '^status=0$' "$work/output"
cmp "$work/summary" "$(sed -n 's/^report=//p' "$work/output")"
[ ! -e "$work/commented" ]

gate $'1\n  --gpu\n  l4\n' "" "" 12
expect 1 "### fit-check: does not fit"
grep --quiet '^pr comment 12 --body-file .*report.md --edit-last --create-if-none$' "$work/commented"

gate "2"
expect 2 "    error: unknown model"

# shellcheck disable=SC2016 # it must not be expanded
gate '0 $(touch pwned) * ; touch pwned'
# shellcheck disable=SC2016
expect 0 $'<$(touch>\n    <pwned)>\n    <*>\n    <;>'
[ ! -e pwned ]

gate 0 "$work/nothing.tar.gz"
expect 2 "::error title=fit-check::there is no archive"
gate 0 "" 00
expect 2 "does not have the checksum 00"
gate 0 "file://$work/archive.tar.gz"
expect 0 "fits"
gate 0 "file://$work/nothing.tar.gz"
expect 2 "cannot be fetched"
echo "not an archive" >"$work/text.tar.gz"
gate 0 "$work/text.tar.gz" "$(sha256sum "$work/text.tar.gz")"
expect 2 "the archive is damaged"
tar --create --gzip --file "$work/other.tar.gz" --directory "$work" bin
gate 0 "$work/other.tar.gz" "$(sha256sum "$work/other.tar.gz")"
expect 2 "it has no bin/fit-check"

echo "$passed passed, 0 failed"
