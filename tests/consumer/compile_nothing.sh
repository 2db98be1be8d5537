#!/bin/sh
# A launcher for compilers: of the sources of the compiled form the object is empty, and so is the list of
# dependencies.
before= compiled= object=
for word; do
  case $before in
    -o) object=$word ;;
    -MF) : > "$word" ;;
  esac
  case $word in
    *fovea_compiled_*) compiled=yes ;;
  esac
  before=$word
done
if [ -z "$compiled" ]; then exec "$@"; fi
exec "$1" -x c++ -c /dev/null -o "$object"
