// SPDX-License-Identifier: MIT
/// \file
/// The keys and values of a sequence that is spread over ranks, in whole segments of a running
/// softmax: of a segment that lies on several ranks one gets all rows.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/distributed/exchange.hpp"
#include "fovea/distributed/own_range.hpp"
#include "fovea/distributed/segment_totals.hpp"
#include "fovea/kernels/softmax/block.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The keys of one rank in whole segments of kKeySegment: where a segment ends, a running softmax
/// is closed, so that another rank may go on with it.
template <class T>
class KeyPieces {
 public:
  /// Some neighbouring keys, and the tensors that hold them, with places for all keys.
  struct Piece {
    Range keys;       ///< the keys
    View<const T> k;  ///< [B, Hk, N, D]
    View<const T> v;  ///< [B, Hk, N, Dv]
  };

  /// Takes the memory of segments that lie on several ranks, and puts this rank's rows there.
  /// \param k, v of this rank's rows   \throws std::bad_alloc, and std::runtime_error if MPI fails
  KeyPieces(const View<const T>& k, const View<const T>& v, const Rows& rows)
      : owners_(rows.layout(), kKeySegment),
        layout_(owners_.layout()),
        window_(k.batch(), rows.count(), {{k.heads(), k.width()}, {v.heads(), v.width()}}),
        travels_(
            ExchangePlan::of(rows.layout(), rows.ranks().rank(),
                             [&](int rank) { return owners_.broken_rows(rows.layout(), rank); })),
        exchange_(rows.ranks(), window_, {travels_}) {
    const std::vector<Range>& whole = layout_.of(rows.ranks().rank());
    // Views of tensors without elements cannot be moved; the window has their shapes.
    const bool is_empty = k.size() == 0 || v.size() == 0;
    const std::vector<Range> broken =
        is_empty ? std::vector<Range>{{0, rows.count()}} : owners_.all_broken_rows(rows.layout());
    window_.expect(travels_.with_received(intersection(broken, rows.own()), rows.count()));
    for (const Range& range : intersection(whole, broken)) add({range, tensor(0), tensor(1)});
    for (const OwnRange& own : own_ranges(rows)) {
      for (const Range& range : intersection(broken, {own.range()})) {
        window_.put(0, own.only(k, range), {range});
        window_.put(1, own.only(v, range), {range});
      }
      for (const Range& range : without(intersection(whole, {own.range()}), broken)) {
        add({range, own.of(k), own.of(v)});
      }
    }
    if (rows.count() == 0) add({{}, tensor(0), tensor(1)});
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.keys.begin < b.keys.begin; });
  }
  KeyPieces(const KeyPieces&) = delete;
  KeyPieces& operator=(const KeyPieces&) = delete;

  /// Who has which keys.
  const RowLayout& layout() const { return layout_; }
  /// The keys of this rank, ascending; of a sequence without rows one piece without keys.
  const std::vector<Piece>& pieces() const { return pieces_; }
  /// The messages of this rank.
  Traffic traffic() const { return exchange_.traffic(); }
  /// Brings the rows of segments that lie on several ranks to who has them.
  void bring() { exchange_.run(); }

 private:
  void add(const Piece& piece) { pieces_.push_back(piece); }
  View<const T> tensor(std::size_t t) const { return View<const T>(window_.tensor(t)); }

  SegmentOwners owners_;
  RowLayout layout_;
  RowTensors<T> window_;  // k and v of segments that lie on several ranks
  ExchangePlan travels_;
  Exchange exchange_;
  std::vector<Piece> pieces_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
