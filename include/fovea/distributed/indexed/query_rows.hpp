// SPDX-License-Identifier: MIT
/// \file
/// What the backward pass of attention to single keys reads of query rows, on the ranks of the
/// keys.
#pragma once

#include <vector>

#include "fovea/distributed/indexed/compact_rows.hpp"
#include "fovea/distributed/rows.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The tensors of query rows, with places for all rows of the sequence.
template <class T>
class QueryRows {
 public:
  /// Puts this rank's rows. \param q, out, d_out, lse of its rows   \throws std::bad_alloc
  QueryRows(const View<const T>& q, const View<const T>& out, const View<const T>& d_out,
            const View<const T>& lse, const Rows& rows)
      : tensors_(q.batch(), rows.count(),
                 {{q.heads(), q.width()},
                  {q.heads(), out.width()},
                  {q.heads(), out.width()},
                  {q.heads(), 1}}) {
    tensors_.expect(rows.own());
    tensors_.put(kQ, q, rows.own());
    tensors_.put(kOut, out, rows.own());
    tensors_.put(kGradOfOut, d_out, rows.own());
    tensors_.put(kLse, lse, rows.own());
  }

  /// Where rows are sent and received.
  const RowTensors<T>& tensors() const { return tensors_; }

  /// Some rows, one behind the other.
  struct Some {
    /// Copies them. \param ranges ascending, disjoint   \throws std::bad_alloc
    Some(const QueryRows& all, const std::vector<Range>& ranges)
        : q(all.tensors_, kQ, ranges),
          out(all.tensors_, kOut, ranges),
          d_out(all.tensors_, kGradOfOut, ranges),
          lse(all.tensors_, kLse, ranges) {}

    CompactRows<T> q;      ///< [B, Hq, rows, D]
    CompactRows<T> out;    ///< [B, Hq, rows, Dv]
    CompactRows<T> d_out;  ///< [B, Hq, rows, Dv]
    CompactRows<T> lse;    ///< [B, Hq, rows, 1]
  };

 private:
  enum : std::size_t { kQ, kOut, kGradOfOut, kLse };

  RowTensors<T> tensors_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
