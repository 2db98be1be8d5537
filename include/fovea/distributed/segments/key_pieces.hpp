// SPDX-License-Identifier: MIT
/// \file
/// The keys and values of a sharded sequence, in whole segments of a running softmax: one rank
/// receives all rows of a segment that spans several ranks.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/segments/segment_keys.hpp"
#include "fovea/kernels/softmax/block.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One rank's keys in whole segments of kKeySegment: a running softmax is closed at a segment's
/// end, so that another rank can continue it.
template <class T>
class KeyPieces {
 public:
  /// Some neighbouring keys, and the tensors that hold them, with places for all keys.
  struct Piece {
    Range keys;       ///< the keys
    View<const T> k;  ///< [B, Hk, N, D]
    View<const T> v;  ///< [B, Hk, N, Dv]
  };

  /// Allocates segments that span several ranks, and copies this rank's rows there.
  /// \param k, v of this rank's rows   \throws std::bad_alloc, and std::runtime_error if MPI fails
  KeyPieces(const View<const T>& k, const View<const T>& v, const Sharding& rows)
      : keys_(k, v, rows, kKeySegment), layout_(keys_.owners().layout()) {
    const std::vector<Range>& whole = layout_.of(rows.ranks().rank());
    for (const Range& range : intersection(whole, keys_.broken())) {
      add({range, keys_.k(), keys_.v()});
    }
    for (const OwnRange& own : own_ranges(rows)) {
      for (const Range& range : without(intersection(whole, {own.range()}), keys_.broken())) {
        add({range, own.of(k), own.of(v)});
      }
    }
    if (rows.count() == 0) add({{}, keys_.k(), keys_.v()});
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.keys.begin < b.keys.begin; });
  }
  KeyPieces(const KeyPieces&) = delete;
  KeyPieces& operator=(const KeyPieces&) = delete;

  /// The layout of the keys.
  const RowLayout& layout() const { return layout_; }
  /// The keys of this rank, ascending; of a sequence without rows one piece without keys.
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// Sends the rows of segments that span several ranks to their owners.
  void bring() {
    keys_.bring([] {});
  }

 private:
  void add(const Piece& piece) { pieces_.push_back(piece); }

  SegmentKeys<T> keys_;
  RowLayout layout_;
  std::vector<Piece> pieces_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
