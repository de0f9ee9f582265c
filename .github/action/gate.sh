#!/usr/bin/env bash
# Installs a release of fit-check, asks it, and passes its exit status on: 0 if the job fits, 1 if not, 2 if it cannot tell.
#   FIT_CHECK_ARCHIVE    path or address of fit-check-VERSION-TARGET.tar.gz
#   FIT_CHECK_SHA256     its checksum
#   FIT_CHECK_ARGUMENTS  the arguments, separated by white space
#   FIT_CHECK_COMMENT    the number of a pull request to comment on with `gh`; empty for none
# GitHub sets RUNNER_TEMP, GITHUB_OUTPUT, GITHUB_STEP_SUMMARY (docs.github.com, "Variables reference").
set -euo pipefail

fail() {
  echo "::error title=fit-check::$1"
  exit 2
}

folder=$(mktemp -d "$RUNNER_TEMP/fit-check-XXXXXX")
archive=$folder/archive.tar.gz
case $FIT_CHECK_ARCHIVE in
  *://*)
    curl --fail --silent --show-error --location --retry 3 --output "$archive" "$FIT_CHECK_ARCHIVE" ||
      fail "$FIT_CHECK_ARCHIVE cannot be fetched"
    ;;
  *) cp "$FIT_CHECK_ARCHIVE" "$archive" || fail "there is no archive $FIT_CHECK_ARCHIVE" ;;
esac
# The format of a .sha256 file is taken too: the checksum, then a name.
expected=${FIT_CHECK_SHA256%% *}
echo "$expected  $archive" | sha256sum --check --status || fail "the archive does not have the checksum $expected"
tar --extract --gzip --file "$archive" --strip-components=1 --directory "$folder" || fail "the archive is damaged"
[ -x "$folder/bin/fit-check" ] || fail "the archive is not one of fit-check: it has no bin/fit-check"
[ -z "${GITHUB_PATH:-}" ] || echo "$folder/bin" >>"$GITHUB_PATH"

read -r -d '' -a arguments <<<"$FIT_CHECK_ARGUMENTS" || true
answer=$folder/answer.txt errors=$folder/errors.txt report=$folder/report.md
status=0
"$folder/bin/fit-check" "${arguments[@]}" --quiet >"$answer" 2>"$errors" || status=$?
case $status in
  0) verdict="fits" ;;
  1) verdict="does not fit" ;;
  *) verdict="cannot tell" ;;
esac
{
  echo "### fit-check: $verdict"
  echo
  # An answer is laid out for a terminal. Markdown shows indented lines as they are.
  echo "fit-check ${arguments[*]}" | cat - "$answer" "$errors" | sed 's/^/    /'
} >"$report"

cat "$report"
[ -z "${GITHUB_STEP_SUMMARY:-}" ] || cat "$report" >>"$GITHUB_STEP_SUMMARY"
[ -z "${GITHUB_OUTPUT:-}" ] || printf 'status=%s\nreport=%s\n' "$status" "$report" >>"$GITHUB_OUTPUT"
if [ -n "${FIT_CHECK_COMMENT:-}" ]; then
  # One comment, which later runs replace. Without it the answer is in the log and in the summary.
  gh pr comment "$FIT_CHECK_COMMENT" --body-file "$report" --edit-last --create-if-none ||
    echo "::warning title=fit-check::cannot comment on pull request $FIT_CHECK_COMMENT"
fi
exit "$status"
