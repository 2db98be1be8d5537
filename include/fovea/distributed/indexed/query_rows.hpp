// SPDX-License-Identifier: MIT
/// \file
/// The query-row tensors that the backward pass of attention to single keys reads on the keys'
/// ranks.
#pragma once

#include <cmath>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"
#include "fovea/distributed/sharding.hpp"
#include "fovea/simd/softmax_constants.hpp"

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

/// The tensors of query rows, with places for all rows of the sequence.
template <class T>
class QueryRows {
 public:
  /// Copies this rank's rows. \param q, out, d_out, lse of its rows   \throws std::bad_alloc
  QueryRows(const View<const T>& q, const View<const T>& out, const View<const T>& d_out,
            const View<const T>& lse, const Sharding& rows)
      : tensors_(q.batch(), rows.count(),
                 {{q.heads(), q.width()},
                  {q.heads(), out.width()},
                  {q.heads(), out.width()},
                  {q.heads(), 1},
                  {q.heads(), 1}}),
        lse_(lse),
        own_(rows.own()) {
    tensors_.expect(rows.own());
    tensors_.put(kQ, q, rows.own());
    tensors_.put(kOut, out, rows.own());
    tensors_.put(kGradOfOut, d_out, rows.own());
    tensors_.put(kLse, lse, rows.own());
  }

  /// Copies the rounding error of large lse, if this rank has any: it can be computed only with all
  /// keys of a row. \param find find(to) writes it to [B, Hq, own rows, 1]
  template <class Find>
  void put_lse_low(const Find& find) {
    if (!has_large_lse()) return;
    std::vector<T> low(static_cast<std::size_t>(lse_.size()));
    const View<T> to(low.data(), lse_.shape());
    find(to);
    tensors_.put(kLseLow, View<const T>(to), own_);
  }

  /// The tensors in which rows are sent and received.
  const RowTensors<T>& tensors() const { return tensors_; }

  /// Some rows, stored contiguously.
  struct GatheredRows {
    /// Copies them. \param ranges ascending, disjoint   \throws std::bad_alloc
    GatheredRows(const QueryRows& all, const std::vector<Range>& ranges)
        : q(all.tensors_, kQ, ranges),
          out(all.tensors_, kOut, ranges),
          d_out(all.tensors_, kGradOfOut, ranges),
          lse(all.tensors_, kLse, ranges),
          lse_low(all.tensors_, kLseLow, ranges) {}

    CompactRows<T> q;        ///< [B, Hq, rows, D]
    CompactRows<T> out;      ///< [B, Hq, rows, Dv]
    CompactRows<T> d_out;    ///< [B, Hq, rows, Dv]
    CompactRows<T> lse;      ///< [B, Hq, rows, 1]
    CompactRows<T> lse_low;  ///< [B, Hq, rows, 1] its rounding error where it is large
  };

 private:
  enum : std::size_t { kQ, kOut, kGradOfOut, kLse, kLseLow };

  bool has_large_lse() const {
    for (Index b = 0; b < lse_.batch(); ++b) {
      for (Index h = 0; h < lse_.heads(); ++h) {
        for (Index n = 0; n < lse_.rows(); ++n) {
          if (std::abs(lse_(b, h, n, 0)) > kLargeLse) return true;
        }
      }
    }
    return false;
  }

  RowTensors<T> tensors_;
  View<const T> lse_;
  std::vector<Range> own_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
