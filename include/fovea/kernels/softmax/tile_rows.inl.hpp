// SPDX-License-Identifier: MIT
/// \file
/// How a tile reads keys and values: in place, packed, or packed together with neighbouring residue
/// classes (strided packing), whose rows share pages.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/kernels/softmax/tile.inl.hpp"
#include "fovea/simd/pairs.inl.hpp"
#endif

/// Rows as a matrix of T with unit columns. They are packed if they are not one, or if they are far
/// apart and read often: such rows map to few cache sets.
template <class T, Storage S>
FOVEA_INLINE Matrix<const T> tile_rows(const StoredMatrix<S>& rows, Index count, Index width,
                                       T* packed, bool are_read_often) {
  const bool apart = are_read_often && rows.row * static_cast<Index>(sizeof(T)) >= kFarApart;
  if constexpr (S == Storage::native) {
    if (rows.column == 1 && !apart) return native<T>(rows);
  }
  pack_rows(rows, count, width, packed, padded_size(width));
  return {packed, padded_size(width), 1};
}

/// The begin of the packed classes' values: after their keys.
template <class T, Storage S>
FOVEA_INLINE T* packed_values(const SoftmaxBlockArgs<T, S>& args) {
  return args.classes.data + packed_classes(args.classes.count, args.classes.keys, args.width, 0);
}

/// The packed keys of the block's class from a position on.
template <class T, Storage S>
FOVEA_INLINE Matrix<const T> class_keys(const SoftmaxBlockArgs<T, S>& args, Index position) {
  const Index row = padded_size(args.width);
  return {args.classes.data + args.classes.row(position) * row, row, 1};
}

/// The packed values of the block's class from a position on.
template <class T, Storage S>
FOVEA_INLINE Matrix<const T> class_values(const SoftmaxBlockArgs<T, S>& args, Index position) {
  const Index row = padded_size(args.value_width);
  return {packed_values(args) + args.classes.row(position) * row, row, 1};
}

/// Packs the rows of one matrix.
template <class T, Storage S>
FOVEA_NOINLINE void pack_classes(const SoftmaxBlockArgs<T, S>& args, const StoredMatrix<S>& m,
                                 Index width, T* to) {
  constexpr Index ahead = 8;  // keys: packing one takes less time than a cache miss
  const PackedResidues<T>& classes = args.classes;
  const Index to_row = padded_size(width);
  for (Index i = 0; i < classes.keys; ++i) {
    const Index key = classes.first + i * classes.step;
    // The step of a single key is arbitrary.
    const Index next = i + ahead < classes.keys ? key + ahead * classes.step : args.key_end;
    const Index more = clamped(args.key_end - next, 0, classes.count);
    RowPrefetcher<0>::template of<T>(m, args.key_rows.row(next), 1, more, width).prefetch(more);
    const Index count = clamped(args.key_end - key, 0, classes.count);
    pack_rows(every_row<T>(m, args.key_rows.row(key), 1), count, width, to + i * to_row,
              classes.keys * to_row);
  }
}

/// Packs the keys and values of all classes before the end of the keys.
template <class T, Storage S>
FOVEA_INLINE void pack_classes(const SoftmaxBlockArgs<T, S>& args) {
  pack_classes(args, args.k, args.width, args.classes.data);
  pack_classes(args, args.v, args.value_width, packed_values(args));
}

/// Whether the tiles of a block are read from packed classes. Pairs are packed for each tile.
template <class T, Storage S>
FOVEA_INLINE bool uses_classes(const SoftmaxBlockArgs<T, S>& args) {
  return !kMultipliesPairs<S> && args.classes.data != nullptr;
}

/// The keys [begin, end) of a run: at most one tile. Pairs of keys begin at even ones, counted like
/// tiles, so that a row's pairs are the same in any block.
template <class T, Storage S>
struct KeyTile {
  using Operand = OperandOf<S, T>;

  const KeyRun& run;
  Index begin;
  Index end;
  Index odd = 0;            // 1 if the first key is the second of a pair
  Matrix<const Operand> k;  // [end - begin, D], or pairs of columns
  Matrix<const Operand> v;  // [end - begin, Dv], or pairs of rows
  bool looked = false;
  bool finite = false;

  /// \param packed_k [keys, padded_size(D)] scratch   \param packed_v likewise
  KeyTile(const SoftmaxBlockArgs<T, S>& args, const KeyRun& of_run, Index first, Index last,
          Index sub_blocks, T* packed_k, T* packed_v)
      : run(of_run), begin(first), end(last) {
    const Index step = args.key_rows.step(run.step);
    const Index row = args.key_rows.row(run.first) + step * begin;
    const StoredMatrix<S> keys = every_row<T>(args.k, row, step);
    const StoredMatrix<S> values = every_row<T>(args.v, row, step);
    if constexpr (kMultipliesPairs<S>) {
      odd = (run.first / run.step + begin) % 2;
      k = {operands<S, T>(packed_k), padded_size(args.width), 1};
      v = {operands<S, T>(packed_v), padded_size(args.value_width), 1};
      pack_column_pairs(keys, end - begin, args.width, operands<S, T>(packed_k), k.row);
      pack_row_pairs(values, odd, end - begin, args.value_width, operands<S, T>(packed_v), v.row);
    } else if (uses_classes(args)) {
      const Index position = run.first + run.step * begin;
      k = class_keys(args, position);
      v = class_values(args, position);
    } else {
      // A column of V spans all rows; K is read a few rows at a time, and packing it pays only if
      // it is read often.
      k = tile_rows<T>(keys, end - begin, args.width, packed_k, sub_blocks >= 8);
      v = tile_rows<T>(values, end - begin, args.value_width, packed_v, sub_blocks >= 2);
    }
  }

  /// Whether V is finite. Computed once, on first use.
  bool finite_values(Index value_width) {
    if (looked) return finite;
    looked = true;
    if constexpr (kMultipliesPairs<S>) {
      finite = all_pairs_finite(v.data, v.row, (end - begin + odd + 1) / 2, value_width);
    } else {
      finite = all_finite(v.data, v.row, end - begin, value_width);
    }
    return finite;
  }

  /// Whether a vector sees only one key of a pair.
  template <int V>
  bool splits_pair(const VectorKeys<V>& keys) const {
    bool splits = false;
    for (int i = 0; kMultipliesPairs<S> && i < V; ++i) {
      splits = splits || (keys.begin[i] + odd) % 2 != 0 || (keys.end[i] + odd) % 2 != 0;
    }
    return splits;
  }
};
