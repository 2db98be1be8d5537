// SPDX-License-Identifier: MIT
/// \file
/// Arguments of the kernels of attention to gathered keys in phases: first the weights of many
/// rows, then the sums of their values, each from a copy of keys or values that fits a cache. The
/// bits are those of rows.hpp. The bodies are phases.inl.hpp, compiled once per instruction-set
/// level; table.hpp selects the level.
#pragma once

#include <cstdint>
#include <type_traits>

#include "fovea/kernels/indexed/rows.hpp"

FOVEA_NAMESPACE_BEGIN

/// The number of a key in scratch: an integer as wide as T.
template <class T>
using KeyNumber = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;

/// Copies rows of a matrix contiguously, in slices of columns: column c of row r is to[(c / slice *
/// to_rows + r) * slice + c % slice]. Rows are padded with zeros.
template <class T>
struct IndexedPackArgs {
  StoredMatrix<> from;  ///< [to_rows, columns]
  Index columns = 0;    ///< columns to copy
  Index slice = 0;      ///< columns of a slice, a multiple of a cache line
  Index first = 0;      ///< the rows [first, first + count) are copied
  Index count = 0;      ///< number of rows
  T* to = nullptr;      ///< written, aligned to 64 bytes
  Index to_rows = 0;    ///< rows per slice
};

/// Results that one phase passes to the next. Row r has the places [r * row, (r + 1) * row).
template <class T>
struct IndexedEntries {
  T* weights = nullptr;              ///< [rows, row] logits, and then weights, of its entries
  KeyNumber<T>* keys = nullptr;      ///< [rows, row] its visible keys
  KeyNumber<T>* counts = nullptr;    ///< [rows] the number of its visible keys
  KeyNumber<T>* computed = nullptr;  ///< [rows] the number of its computed logits
  T* inverses = nullptr;             ///< [rows] 1 / the sum of its weights
  Index row = 0;                     ///< indexed_entries_row<T>(K)
};

/// Places of a row of entries: its K keys, and a vector after them.
template <class T>
constexpr Index indexed_entries_row(Index length) {
  return length + 64 / Index{sizeof(T)};
}

/// Computes the logits of some rows of one query head for the keys of a block. Blocks are
/// consecutive; after the last one, logits are turned into weights.
template <class T>
struct IndexedLogitsArgs {
  StoredMatrix<> q;           ///< [Nq, D]
  KeyLists lists;             ///< the lists of all Nq rows, not contiguous
  Matrix<T> lse;              ///< [Nq, 1], written; null data: not requested
  IndexedEntries<T> entries;  ///< of the rows from `first` on
  const T* keys = nullptr;    ///< [block keys, D padded] the keys of the block
  Index keys_row = 0;         ///< their row stride in elements
  Index key_first = 0;        ///< the block has the keys [key_first, key_end); the first one 0
  Index key_end = 0;          ///< the end of the block
  bool is_last = true;        ///< whether this is the last block
  bool ahead = false;         ///< whether to prefetch keys
  Index width = 0;            ///< D
  T scale = 0;                ///< factor of the logits
  Index first = 0;            ///< the rows [first, first + count) are computed
  Index count = 0;            ///< number of rows
  T* scratch = nullptr;       ///< indexed_logits_scratch(...) elements, aligned to 64 bytes
};

/// The maximum number of rows whose logits are computed together.
inline constexpr Index kPhaseRows = 128;
/// The maximum number of their entries, unless a single row has more.
inline constexpr Index kPhaseEntries = 1024;
/// The prefetch distance, in entries.
inline constexpr Index kPhaseAhead = 16;

/// Places for the entries of rows that are computed together.
constexpr Index indexed_phase_entries(Index length) {
  return padded_size(kPhaseEntries + kPhaseAhead + length + 2 * kPadding);
}

/// Elements of scratch for IndexedLogitsArgs: queries, and for each entry its key, its query's
/// offset, and its logit.
constexpr Index indexed_logits_scratch(Index width, Index length) {
  return kPhaseRows * padded_size(width) + 3 * indexed_phase_entries(length);
}

/// Sums some columns of the values of some rows, with their weights.
template <class T>
struct IndexedValuesArgs {
  IndexedEntries<T> entries;  ///< of the rows from `first` on
  const T* values = nullptr;  ///< [keys, slice] these columns of the values
  Index slice = 0;            ///< computed columns, a multiple of a cache line
  OutputMatrix<> out;         ///< [Nq, Dv], written
  Index column = 0;           ///< the first of these columns
  Index width = 0;            ///< Dv; columns from it on are not written
  Index first = 0;            ///< the rows [first, first + count) are computed
  Index count = 0;            ///< number of rows
};

FOVEA_NAMESPACE_END
