// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the kernel that chooses keys by a sketch (Smart Bird, eqs. 2 and 3). Its body is
/// select.inl.hpp, compiled once per instruction-set level; table.hpp selects the level. The choice
/// is the same at every level, also at those without a fused multiply-add.
#pragma once

#include <cstdint>

#include "fovea/kernels/sketch/blocks.hpp"
#include "fovea/simd/matrix.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// How a key's score s = u p is computed: u in (0, 1) is drawn, and p depends on the sketch's
/// weight alpha (Smart Bird, eq. 2 and Figure 4).
enum class SamplingPolicy : std::uint8_t {
  squared_inverse_log,  ///< p = 1 / log(alpha)^2
  inverse_log,          ///< p = -1 / log(alpha)
  raw,                  ///< p = alpha
  top_k,                ///< s = alpha: nothing is drawn
  random,               ///< p = 1: the sketch is not read
};

/// Some rows of one sequence, whose sketch has one head, and the keys that each head of the
/// attention keeps for them.
template <class T>
struct SketchSelectArgs {
  Matrix<const T> q;  ///< [rows, width] the sketch's queries
  /// [width, keys_row] the sketch's keys: column c of key j is keys[c * keys_row + j]. There are
  /// sketch_room(keys) of them; those after the last key are arbitrary finite numbers.
  const T* keys = nullptr;
  Index keys_row = 0;  ///< column stride of the keys in elements
  /// The same keys in blocks, most of which are skipped; the choice is the same. Null: all keys are
  /// read.
  const SketchBlocks<T>* blocks = nullptr;
  Index width = 0;           ///< d
  Index rows = 0;            ///< number of rows
  Index key_end = 0;         ///< keys from this one on are invisible
  bool causal = false;       ///< whether a row sees no key after its own position
  Index first_position = 0;  ///< position of row 0
  T scale = 1;               ///< factor of the sketch's logits
  /// How alpha becomes a score.
  SamplingPolicy policy = SamplingPolicy::squared_inverse_log;
  std::uint64_t seed = 0;   ///< seed of the draws
  std::uint32_t batch = 0;  ///< number of the sequence, for the draws
  Index heads = 1;          ///< number of query heads of the attention
  /// The draws: element (h, row, j) is draws[h * draws_head + row * draws_row + j * draws_column].
  /// Null: drawn from the seed.
  const T* draws = nullptr;
  Index draws_head = 0,  ///< head stride of the draws in elements
      draws_row = 0,     ///< row stride
      draws_column = 0;  ///< key stride
  /// The output keys: element (h, row, n) for n < chosen, ascending, with -1 after the last key.
  Index* indices = nullptr;
  Index indices_head = 0,  ///< head stride of the lists in elements
      indices_row = 0,     ///< row stride
      indices_column = 1;  ///< stride within a list
  Index chosen = 0;        ///< K, the places of a list
  /// [rows], written: whether the row's softmax over the sketch is a number; if not, it keeps its
  /// first keys. Null: not requested.
  bool* is_number = nullptr;
  /// [rows], written: the number of logits computed for the row, or of keys if all were read. Null:
  /// not requested.
  Index* looked_at = nullptr;
  void* scratch = nullptr;  ///< sketch_select_scratch<T>(keys, width, blocks != nullptr) bytes
};

/// A number of keys rounded up to a cache line of any scalar, plus two vectors that kernels may
/// access.
constexpr Index sketch_room(Index keys) { return padded_size(keys) + 2 * kPadding; }

/// Bytes of scratch of one call, for that many keys.
template <class T>
constexpr Index sketch_select_scratch(Index keys, Index width, bool by_blocks = false) {
  constexpr Index of_key = (kSketchRows + 6) * Index{sizeof(T)} + Index{sizeof(double)};
  const Index of_blocks = by_blocks ? sketch_block_scratch(keys, width) : 0;
  return sketch_room(keys) * of_key +
         (sketch_room(kSketchRows * width) + of_blocks) * Index{sizeof(T)};
}

FOVEA_NAMESPACE_END
