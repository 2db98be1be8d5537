// SPDX-License-Identifier: MIT
/// \file
/// What a level can do at most: multiply-adds without a load, and loads without arithmetic that
/// counts. Compiled once per level by bench/probe.hpp.

/// Chains of multiply-adds that do not wait for each other: more than latency x units of any core
/// known, and with two operands no more than 16 registers.
inline constexpr int kFmaChains = 12;

/// \param operands [2] near (1, 0), read so that nothing is known at compile time
/// \param sink [lanes] takes the result
/// Returns the flops done: 2 per lane and step of each chain.
template <class T>
FOVEA_NOINLINE Index fma_chains(const T* operands, Index steps, T* sink) noexcept {
  const Vec<T> factor = set1(operands[0]);
  const Vec<T> addend = set1(operands[1]);
  Vec<T> chain[kFmaChains];
  FOVEA_UNROLL
  for (int c = 0; c < kFmaChains; ++c) chain[c] = set1(static_cast<T>(c) * operands[0]);
  for (Index s = 0; s < steps; ++s) {
    FOVEA_UNROLL
    for (int c = 0; c < kFmaChains; ++c) chain[c] = fma(chain[c], factor, addend);
  }
  Vec<T> sum = chain[0];
  FOVEA_UNROLL
  for (int c = 1; c < kFmaChains; ++c) sum = sum + chain[c];
  store(sink, sum);
  return Index{2} * kFmaChains * kLanes<T> * steps;
}

/// Reads data [n] once, n a multiple of 128; sink [lanes] takes a sum.
template <class T>
FOVEA_NOINLINE void read_all(const T* data, Index n, T* sink) noexcept {
  constexpr int loads = 8;
  Vec<T> sum[loads];
  FOVEA_UNROLL
  for (int i = 0; i < loads; ++i) sum[i] = zero<T>();
  for (Index at = 0; at < n; at += loads * kLanes<T>) {
    FOVEA_UNROLL
    for (int i = 0; i < loads; ++i) sum[i] = sum[i] + load(data + at + i * kLanes<T>);
  }
  FOVEA_UNROLL
  for (int i = 1; i < loads; ++i) sum[0] = sum[0] + sum[i];
  store(sink, sum[0]);
}

/// The probes of this level.
template <class T>
inline constexpr Probes<T> kProbes = {&fma_chains<T>, &read_all<T>};
