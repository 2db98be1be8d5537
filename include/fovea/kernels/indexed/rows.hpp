// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the kernels of attention to gathered keys. Their bodies are rows.inl.hpp,
/// short_rows.inl.hpp and grad.inl.hpp, compiled once per instruction-set level; table.hpp selects
/// the level.
#pragma once

#include "fovea/simd/matrix.hpp"
#include "fovea/simd/padding.hpp"
#include "fovea/simd/softmax_constants.hpp"

FOVEA_NAMESPACE_BEGIN

/// The lists of the rows of one query head. Entry n of row r is data[r * row + n * step]: a key, or
/// -1. Keys ascend, with -1 only after the last one. Row r sees the keys of its list that are
/// before key_end and, if `causal`, not after its own position. If `begin` is given, the lists have
/// any lengths and are contiguous (CSR): row r sees all keys from data[begin[r]] to data[begin[r +
/// 1] - 1].
struct KeyLists {
  const Index* data = nullptr;   ///< the entries
  Index row = 0;                 ///< stride of lists in elements; unused with `begin`
  Index step = 1;                ///< stride of entries in elements; 1 with `begin`
  Index length = 0;              ///< K, the entries of a row; with `begin` an upper bound
  Index key_end = 0;             ///< keys from this one on are invisible
  bool causal = false;           ///< whether a row sees no key after its own position
  Index first_position = 0;      ///< position of row 0
  const Index* begin = nullptr;  ///< [rows + 1]; null: all lists have K entries

  /// The first entry of row r.
  constexpr const Index* of(Index r) const {
    return data + (begin == nullptr ? r * row : begin[r]);
  }

  /// The place of row r's first entry in arrays with one element per entry.
  constexpr Index place(Index r) const { return begin == nullptr ? r * length : begin[r]; }

  /// The number of row r's visible entries, its first ones.
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
  Matrix<T> lse;        ///< [Nq, 1], written; null data: not requested
  KeyLists lists;       ///< the lists of all Nq rows
  /// One factor per entry, applied to its weight after the softmax. Null: 1.
  const T* factors = nullptr;
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  T scale = 0;            ///< factor of the logits
  Index first = 0;        ///< the rows [first, first + count) are computed
  Index count = 0;        ///< number of rows
  /// Whether to prefetch the keys and values of a row: it pays if they exceed the caches.
  bool ahead = false;
  /// indexed_scratch(...) elements, or indexed_short_scratch(...) with KeyLists::begin; aligned to
  /// 64 bytes.
  T* scratch = nullptr;
};

/// Elements of scratch for IndexedRowsArgs: the query, the weights and the list of one row.
constexpr Index indexed_scratch(Index width, Index length) {
  return padded_size(width) + 3 * padded_size(length);
}

/// The maximum number of rows computed together if their lists are short and contiguous.
inline constexpr Index kShortRows = 32;
/// The maximum number of entries of such rows together.
inline constexpr Index kShortEntries = 64;

/// Elements of scratch for IndexedRowsArgs with contiguous lists: also the queries of kShortRows
/// rows.
constexpr Index indexed_short_scratch(Index width, Index length) {
  return indexed_scratch(width, length) + kShortRows * padded_size(width);
}

/// An entry of the lists of one query head, as the gradients of its key and value read it.
template <class T>
struct KeyEntry {
  Index row;  ///< the row whose list it is in
  T weight;   ///< its weight, with its factor
  T d_logit;  ///< the gradient of its logit
};

/// The backward pass of some rows of one query head: computes the gradients of their queries, and
/// the inputs for the gradients of keys and values.
template <class T>
struct IndexedGradRowsArgs {
  Matrix<const T> q;               ///< [Nq, D]
  Matrix<const T> k;               ///< [keys, D]
  Matrix<const T> v;               ///< [keys, Dv]
  Matrix<const T> out;             ///< [Nq, Dv]
  Matrix<const T> d_out;           ///< [Nq, Dv]
  Matrix<const T> lse;             ///< [Nq, 1]
  Matrix<T> d_q;                   ///< [Nq, D], written; null data: not requested
  KeyLists lists;                  ///< the lists of all Nq rows
  const T* factors = nullptr;      ///< as in IndexedRowsArgs
  Index width = 0;                 ///< D
  Index value_width = 0;           ///< Dv
  T scale = 0;                     ///< factor of the logits
  Index first = 0;                 ///< the rows [first, first + count) are computed
  Index count = 0;                 ///< number of rows
  KeyEntry<T>* entries = nullptr;  ///< the visible entries by keys, written; null: not requested
  /// [keys] for each key the place of its next entry, advanced; needed for `entries`.
  Index* next = nullptr;
  bool keeps_logits = true;  ///< whether the entries' `d_logit` is needed
  T* d_factors = nullptr;    ///< [Nq, K] gradients of the factors, written; null: not requested
  /// [Nq, 1] the rounding error of large lse, written by `find_lse_low`; null data: computed from
  /// the lists, which needs all keys of a row.
  Matrix<const T> lse_low = {};
  Matrix<T> find_lse_low = {};  ///< [Nq, 1], if given the only output
  T* scratch = nullptr;         ///< indexed_grad_scratch(...) elements, aligned to 64 bytes
};

/// Elements of scratch for IndexedGradRowsArgs.
constexpr Index indexed_grad_scratch(Index width, Index value_width, Index length) {
  return indexed_scratch(width, length) + padded_size(value_width) + padded_size(length);
}

/// The inputs of the gradients of keys and values, of one query head.
template <class T>
struct IndexedGradHead {
  Matrix<const T> q;      ///< [Nq, D]
  Matrix<const T> d_out;  ///< [Nq, Dv]
  /// As IndexedGradRowsArgs wrote them: key j has the entries [begin[j], begin[j + 1]), in the
  /// order of rows.
  const KeyEntry<T>* entries = nullptr;
  const Index* begin = nullptr;  ///< [keys + 1]
};

/// The gradients of some keys and values of one key head.
template <class T>
struct IndexedGradKeysArgs {
  const IndexedGradHead<T>* heads =
      nullptr;            ///< [head_count] query heads of the key head, in order
  Index head_count = 0;   ///< number of these query heads
  Matrix<T> d_k;          ///< [keys, D], written; null data: not requested
  Matrix<T> d_v;          ///< [keys, Dv], written; null data: not requested
  Index width = 0;        ///< D
  Index value_width = 0;  ///< Dv
  T scale = 0;            ///< factor of the logits
  Index first = 0;        ///< the keys [first, first + count) are computed
  Index count = 0;        ///< number of keys
  Index keys = 0;         ///< number of keys of the key head
};

FOVEA_NAMESPACE_END
