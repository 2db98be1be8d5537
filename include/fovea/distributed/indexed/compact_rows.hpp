// SPDX-License-Identifier: MIT
/// \file
/// Some rows of a sequence, stored contiguously.
#pragma once

#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A compact tensor of some rows of a tensor with places for all.
template <class T>
class CompactRows {
 public:
  /// Copies the rows. \param ranges ascending, disjoint   \throws std::bad_alloc
  CompactRows(const RowTensors<T>& from, std::size_t t, const std::vector<Range>& ranges) {
    shape_ = from.tensor(t).shape();
    shape_[2] = row_count(ranges);
    memory_ = Workspace(shape_[0] * shape_[1] * shape_[2] * shape_[3], Index{sizeof(T)});
    from.get(t, view(), ranges);
  }

  /// The tensor, [B, H, rows, width].
  View<T> view() { return View<T>(memory_.template data<T>(), shape_); }

 private:
  Shape shape_{};
  Workspace memory_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
