// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of attention over lists of keys read and write. Their bodies are
/// gather.inl.hpp and gather_grad.inl.hpp, compiled once per instruction-set level; table.hpp
/// chooses the level.
#pragma once

#include "fovea/simd/matrix.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

/// The lists of the rows of one head: entry n of row r is data[r * row + n * step], a key or -1.
/// They ascend, and -1 stands behind the last key alone. Row r sees of its list the keys before
/// key_end; if it is causal, also those up to its position alone.
/// Or, where `begin` is given, lists of any length one behind the other: row r sees the keys
/// data[begin[r]] up to data[begin[r + 1] - 1], all of them.
struct KeyLists {
  const Index* data = nullptr;
  Index row = 0;
  Index step = 1;
  Index length = 0;   // K: entries of a row, with `begin` at most
  Index key_end = 0;  // keys at and beyond it are invisible
  bool causal = false;
  Index first_position = 0;      // of row 0
  const Index* begin = nullptr;  // [rows + 1], or null

  constexpr const Index* of(Index r) const {
    return data + (begin == nullptr ? r * row : begin[r]);
  }

  /// Where the first entry of row r stands in arrays of one element for each entry.
  constexpr Index place(Index r) const { return begin == nullptr ? r * length : begin[r]; }

  /// How many of its entries row r sees: they are its first ones.
  constexpr Index visible(Index r) const {
    if (begin != nullptr) return begin[r + 1] - begin[r];
    if (length == 0) return 0;
    const Index behind = first_position + r + 1;
    const Index end = causal && behind < key_end ? behind : key_end;
    const Index* const list = of(r);
    const auto sees = [=, this](Index n) { return list[n * step] >= 0 && list[n * step] < end; };
    if (sees(length - 1)) return length;
    Index n = 0;
    while (n < length && sees(n)) ++n;
    return n;
  }
};

/// Some rows of one query head against the keys of their lists. All matrices are stored alike.
template <class T, Storage S = Storage::native>
struct GatherArgs {
  StoredMatrix<S> q;           // [Nq, D]
  StoredMatrix<S> k;           // [keys, D]
  StoredMatrix<S> v;           // [keys, Dv]
  OutputMatrix<S> out;         // [Nq, Dv]
  Matrix<T> lse;               // [Nq, 1], or no data
  KeyLists lists;              // [Nq, K]
  const T* factors = nullptr;  // of the weights of entries, after the softmax; null: 1
  Index width = 0;             // D
  Index value_width = 0;       // Dv
  T scale = 0;                 // of the logits
  Index first = 0;             // rows [first, first + count)
  Index count = 0;
  bool ahead = false;  // ask for the keys and values of a row before it: where no cache holds all
  // gather_scratch(...) elements, or gather_short_scratch(...), aligned to 64 bytes
  T* scratch = nullptr;
};

/// Numbers of one row in scratch, padded to a cache line of floats.
constexpr Index gather_padded(Index n) { return (n + 15) / 16 * 16; }

/// Elements of scratch of GatherArgs: the query, the weights and the list of one row.
constexpr Index gather_scratch(Index width, Index length) {
  return gather_padded(width) + 3 * gather_padded(length);
}

/// Rows of lists that lie one behind the other which are computed together if they are short, and
/// their entries.
inline constexpr Index kShortRows = 32;
inline constexpr Index kShortEntries = 64;

/// The same of lists that lie one behind the other: the queries of some rows besides.
constexpr Index gather_short_scratch(Index width, Index length) {
  return gather_scratch(width, length) + kShortRows * gather_padded(width);
}

/// The same rows backwards: gradients of their queries, and what those of their keys are made of.
template <class T>
struct GatherGradRowsArgs {
  Matrix<const T> q;           // [Nq, D]
  Matrix<const T> k;           // [keys, D]
  Matrix<const T> v;           // [keys, Dv]
  Matrix<const T> out;         // [Nq, Dv]
  Matrix<const T> d_out;       // [Nq, Dv]
  Matrix<const T> lse;         // [Nq, 1]
  Matrix<T> d_q;               // [Nq, D], or no data
  KeyLists lists;              // [Nq, K]
  const T* factors = nullptr;  // as in GatherArgs
  Index width = 0;
  Index value_width = 0;
  T scale = 0;
  Index first = 0;  // rows [first, first + count)
  Index count = 0;
  T* weights = nullptr;    // [Nq, K] of the visible entries, factors included, or null
  T* d_logits = nullptr;   // [Nq, K] gradients of their logits, or null
  T* d_factors = nullptr;  // [Nq, K] gradients of their factors, or null
  T* scratch = nullptr;    // gather_grad_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch of GatherGradRowsArgs.
constexpr Index gather_grad_scratch(Index width, Index value_width, Index length) {
  return gather_scratch(width, length) + gather_padded(value_width) + gather_padded(length) +
         gather_padded(1);
}

/// The lists of one head the other way round: key j stands in the entries [begin[j], begin[j + 1]),
/// in the order of their rows.
struct RowLists {
  const Index* begin = nullptr;   // [keys + 1]
  const Index* rows = nullptr;    // of each entry
  const Index* places = nullptr;  // the same in [Nq, K]
};

/// What the gradients of keys read of one query head.
template <class T>
struct GatherGradHead {
  Matrix<const T> q;            // [Nq, D]
  Matrix<const T> d_out;        // [Nq, Dv]
  const T* weights = nullptr;   // as GatherGradRowsArgs left them
  const T* d_logits = nullptr;  // the same
  RowLists lists;
};

/// The gradients of some keys and values of one key head.
template <class T>
struct GatherGradKeysArgs {
  const GatherGradHead<T>* heads = nullptr;  // [head_count] that read the key head, in order
  Index head_count = 0;
  Matrix<T> d_k;  // [keys, D], or no data
  Matrix<T> d_v;  // [keys, Dv], or no data
  Index width = 0;
  Index value_width = 0;
  T scale = 0;
  Index first = 0;  // keys [first, first + count)
  Index count = 0;
};

FOVEA_NAMESPACE_END
