// SPDX-License-Identifier: MIT
/// \file
/// What the kernels of attention over lists of keys read and write. Their bodies are
/// rows.inl.hpp, short_rows.inl.hpp and grad.inl.hpp, compiled once for each
/// instruction-set level; table.hpp chooses the level.
#pragma once

#include "fovea/simd/matrix.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

/// The lists of the rows of one query head. Entry n of row r is data[r * row + n * step]: a key, or
/// -1. Keys ascend, and -1 stands only behind the last one. Row r sees those keys of its list that
/// lie before key_end and, if `causal`, not after its own position.
/// If `begin` is given, the lists have any lengths and lie one behind the other: row r sees all the
/// keys from data[begin[r]] to data[begin[r + 1] - 1].
struct KeyLists {
  const Index* data = nullptr;   ///< the entries
  Index row = 0;                 ///< elements from one list to the next; unused with `begin`
  Index step = 1;                ///< elements from one entry to the next; 1 with `begin`
  Index length = 0;              ///< K, the entries of a row; with `begin` an upper bound of them
  Index key_end = 0;             ///< keys from this one on are invisible
  bool causal = false;           ///< whether a row sees no key after its own position
  Index first_position = 0;      ///< position of row 0
  const Index* begin = nullptr;  ///< [rows + 1]; null: all lists have K entries

  /// The first entry of row r.
  constexpr const Index* of(Index r) const {
    return data + (begin == nullptr ? r * row : begin[r]);
  }

  /// The place of row r's first entry in arrays that have one element for each entry.
  constexpr Index place(Index r) const { return begin == nullptr ? r * length : begin[r]; }

  /// The number of entries that row r sees: they are its first ones.
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

/// Some rows of one query head, and the keys of their lists. All matrices are stored in the same
/// type.
template <class T, Storage S = Storage::native>
struct IndexedRowsArgs {
  StoredMatrix<S> q;    ///< [Nq, D]
  StoredMatrix<S> k;    ///< [keys, D]
  StoredMatrix<S> v;    ///< [keys, Dv]
  OutputMatrix<S> out;  ///< [Nq, Dv], written
  Matrix<T> lse;        ///< [Nq, 1], written; null data: not wanted
  KeyLists lists;       ///< the lists of all Nq rows
  /// One for each entry: its weight is multiplied by it after the softmax. Null: 1.
  const T* factors = nullptr;
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  T scale = 0;            ///< factor of the logits
  Index first = 0;        ///< the rows [first, first + count) are computed
  Index count = 0;        ///< number of rows
  /// Whether to ask for the keys and values of a row before they are needed: it pays where no cache
  /// holds all of them.
  bool ahead = false;
  /// indexed_scratch(...) elements, or indexed_short_scratch(...) with KeyLists::begin; aligned to
  /// 64 bytes.
  T* scratch = nullptr;
};

/// Elements of scratch for IndexedRowsArgs: the query, the weights and the list of one row.
constexpr Index indexed_scratch(Index width, Index length) {
  return padded_size(width) + 3 * padded_size(length);
}

/// The most rows that are computed together if their lists are short and lie one behind the other.
inline constexpr Index kShortRows = 32;
/// The most entries that such rows have together.
inline constexpr Index kShortEntries = 64;

/// Elements of scratch for IndexedRowsArgs if lists lie one behind the other: also the queries of
/// kShortRows rows.
constexpr Index indexed_short_scratch(Index width, Index length) {
  return indexed_scratch(width, length) + kShortRows * padded_size(width);
}

/// Some rows of one query head backwards: it computes the gradients of their queries, and what the
/// gradients of keys and values are made of.
template <class T>
struct IndexedGradRowsArgs {
  Matrix<const T> q;           ///< [Nq, D]
  Matrix<const T> k;           ///< [keys, D]
  Matrix<const T> v;           ///< [keys, Dv]
  Matrix<const T> out;         ///< [Nq, Dv]
  Matrix<const T> d_out;       ///< [Nq, Dv]
  Matrix<const T> lse;         ///< [Nq, 1]
  Matrix<T> d_q;               ///< [Nq, D], written; null data: not wanted
  KeyLists lists;              ///< the lists of all Nq rows
  const T* factors = nullptr;  ///< as in IndexedRowsArgs
  Index width = 0;             ///< D
  Index value_width = 0;       ///< Dv
  T scale = 0;                 ///< factor of the logits
  Index first = 0;             ///< the rows [first, first + count) are computed
  Index count = 0;             ///< number of rows
  /// [Nq, K] the weights of the visible entries with their factors, written; null: not wanted.
  T* weights = nullptr;
  T* d_logits = nullptr;   ///< [Nq, K] gradients of the logits, written; null: not wanted
  T* d_factors = nullptr;  ///< [Nq, K] gradients of the factors, written; null: not wanted
  /// [Nq, 1] what the rounding of a large lse took, which `find_lse_low` has written; null data: it
  /// is found of the lists. Only who has all keys of a row can find it.
  Matrix<const T> lse_low = {};
  Matrix<T> find_lse_low = {};  ///< [Nq, 1], written, and nothing else is; null data: not wanted
  T* scratch = nullptr;         ///< indexed_grad_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch for IndexedGradRowsArgs.
constexpr Index indexed_grad_scratch(Index width, Index value_width, Index length) {
  return indexed_scratch(width, length) + padded_size(value_width) + padded_size(length) +
         padded_size(1);
}

/// The lists of one query head the other way round.
/// Key j stands in the entries [begin[j], begin[j + 1]), in the order of their rows.
struct RowLists {
  const Index* begin = nullptr;   ///< [keys + 1]
  const Index* rows = nullptr;    ///< for each entry its row
  const Index* places = nullptr;  ///< for each entry its place in [Nq, K]
};

/// What the gradients of keys and values read of one query head.
template <class T>
struct IndexedGradHead {
  Matrix<const T> q;            ///< [Nq, D]
  Matrix<const T> d_out;        ///< [Nq, Dv]
  const T* weights = nullptr;   ///< as IndexedGradRowsArgs wrote them; needed for d_v
  const T* d_logits = nullptr;  ///< as IndexedGradRowsArgs wrote them; needed for d_k
  RowLists lists;               ///< for each key the rows that list it
};

/// The gradients of some keys and values of one key head.
template <class T>
struct IndexedGradKeysArgs {
  const IndexedGradHead<T>* heads =
      nullptr;            ///< [head_count] query heads of the key head, in order
  Index head_count = 0;   ///< number of these query heads
  Matrix<T> d_k;          ///< [keys, D], written; null data: not wanted
  Matrix<T> d_v;          ///< [keys, Dv], written; null data: not wanted
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  T scale = 0;            ///< factor of the logits
  Index first = 0;        ///< the keys [first, first + count) are computed
  Index count = 0;        ///< number of keys
};

FOVEA_NAMESPACE_END
