// SPDX-License-Identifier: MIT
/// \file
/// What the audit must find: a function with AVX2 code that the linker may use for other units.
template <class T>
__attribute__((target("avx2,fma"), noinline)) void planted(T* x) {
  for (int i = 0; i < 64; ++i) x[i] = x[i] * x[i] + x[i];
}
template void planted<float>(float*);
