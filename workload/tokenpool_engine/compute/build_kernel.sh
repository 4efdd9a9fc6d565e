#!/bin/sh
# Compiles the CPU kernel: build_kernel.sh OUT.so. Without a C compiler the engine computes with torch, slower.
# -mtune only orders instructions; which of them the CPU may get is asked at run time (native.py).
set -eu
here=$(dirname "$0")
"${CC:-cc}" -std=gnu11 -O3 -fPIC -shared -pthread -fno-math-errno -fno-trapping-math -fno-strict-aliasing \
  -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16 -mfma -mtune=sapphirerapids \
  -Wall -Wextra "$here/cpu_kernel.c" -o "$1"
