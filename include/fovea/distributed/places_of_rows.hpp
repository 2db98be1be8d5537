// SPDX-License-Identifier: MIT
/// \file
/// From a row of a sequence to the rank that holds it.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/distributed/row_layout.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Where each row of a sequence is.
class PlacesOfRows {
 public:
  /// The places of the rows of a layout.
  explicit PlacesOfRows(const RowLayout& layout) {
    for (int rank = 0; rank < layout.ranks(); ++rank) {
      Index first = 0;
      for (const Range& range : layout.of(rank)) {
        pieces_.push_back({range.begin, rank, first});
        first += range.end - range.begin;
      }
    }
    std::sort(pieces_.begin(), pieces_.end(),
              [](const Piece& a, const Piece& b) { return a.begin < b.begin; });
  }

  /// The rank that holds a row.
  int rank(Index row) const { return piece(row).rank; }
  /// The place of a row among those of its rank.
  Index place(Index row) const {
    const Piece& of = piece(row);
    return of.first + row - of.begin;
  }

 private:
  /// A range of a rank.
  struct Piece {
    Index begin;
    int rank;
    Index first;  // place of its first row among the rank's
  };

  const Piece& piece(Index row) const {
    return *(std::upper_bound(pieces_.begin(), pieces_.end(), row,
                              [](Index r, const Piece& p) { return r < p.begin; }) -
             1);
  }

  std::vector<Piece> pieces_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
