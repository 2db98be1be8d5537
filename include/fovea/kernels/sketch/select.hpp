// SPDX-License-Identifier: MIT
/// \file
/// What the kernel that chooses keys by a sketch reads and writes (Smart Bird, eqs. 2 and 3). Its
/// body is sketch_select.inl.hpp, compiled once per instruction-set level; table.hpp chooses the
/// level. The choice is the same at every level, those without a fused multiply-add too.
#pragma once

#include <cstdint>

#include "fovea/simd/matrix.hpp"

FOVEA_NAMESPACE_BEGIN

/// What a key's score s = u p is made of: u in (0, 1) is drawn, p follows from the sketch's weight
/// alpha (Smart Bird, eq. 2 and Figure 4).
enum class SamplingPolicy : std::uint8_t {
  squared_inverse_log,  ///< p = 1 / log(alpha)^2
  inverse_log,          ///< p = -1 / log(alpha)
  raw,                  ///< p = alpha
  top_k,                ///< s = alpha: nothing is drawn
  random,               ///< p = 1: the sketch is not read
};

/// Rows that the kernel scores together.
inline constexpr Index kSketchRows = 4;

/// Rows of one sequence, whose sketch has one head, and the keys that each head of the attention
/// keeps of them.
template <class T>
struct SketchSelectArgs {
  Matrix<const T> q;  // [rows, width]
  /// [width, keys_row]: column c of key j is keys[c * keys_row + j]; sketch_padded(keys) of them,
  /// where what stands behind the last key is any number, and finite
  const T* keys = nullptr;
  Index keys_row = 0;
  Index width = 0;  // d
  Index rows = 0;
  Index key_end = 0;  // keys at and beyond this one are invisible
  bool causal = false;
  Index first_position = 0;  // of row 0, whose keys end there if causal
  T scale = 1;
  SamplingPolicy policy = SamplingPolicy::squared_inverse_log;
  std::uint64_t seed = 0;
  std::uint32_t batch = 0;  // number of the sequence, for the draws
  Index heads = 1;
  /// Element (h, row, j): the draws themselves; or no data, and they come from the seed.
  const T* draws = nullptr;
  Index draws_head = 0, draws_row = 0, draws_column = 0;
  /// Element (h, row, n), n < chosen: ascending keys, -1 behind the last.
  Index* indices = nullptr;
  Index indices_head = 0, indices_row = 0, indices_column = 1;
  Index chosen = 0;  // K
  /// [rows]: whether the row's sketch is made of numbers; or null. Where it is not, the row keeps
  /// its first keys.
  bool* is_number = nullptr;
  void* scratch = nullptr;  // sketch_select_scratch<T>(keys, width) bytes
};

/// Keys up to a cache line of any scalar, and a vector more: what kernels may touch.
constexpr Index sketch_padded(Index keys) { return (keys + 15) / 16 * 16 + 16; }

/// Bytes of scratch of one call for that many keys.
template <class T>
constexpr Index sketch_select_scratch(Index keys, Index width) {
  constexpr Index of_key = (kSketchRows + 6) * Index{sizeof(T)} + Index{sizeof(double)};
  return sketch_padded(keys) * of_key + sketch_padded(kSketchRows * width) * Index{sizeof(T)};
}

FOVEA_NAMESPACE_END
