#!/bin/sh
# A launcher for compilers: of the sources of kernels the object is empty, and so is the list of
# dependencies.
before= kernels= object=
for word; do
  case $before in
    -o) object=$word ;;
    -MF) : > "$word" ;;
  esac
  case $word in
    */kernels/*.cpp) kernels=yes ;;
  esac
  before=$word
done
if [ -z "$kernels" ]; then exec "$@"; fi
exec "$1" -x c++ -c /dev/null -o "$object"
