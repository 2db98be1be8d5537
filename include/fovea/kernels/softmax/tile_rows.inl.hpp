// SPDX-License-Identifier: MIT
/// \file
/// How a tile reads keys and values: in place, packed, or packed together with neighbouring residue
/// classes (strided packing), whose rows share pages.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/softmax/block.hpp"
#include "fovea/simd/stored_rows.inl.hpp"
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
