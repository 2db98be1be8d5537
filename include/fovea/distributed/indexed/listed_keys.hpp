// SPDX-License-Identifier: MIT
/// \file
/// The keys and values in key lists, local or remote.
#pragma once

#include <optional>
#include <vector>

#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/requests.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Calls f(row among the rank's, key) for every key in lists of a rank's rows.
/// \param lists [B, Hq, own rows, K], with -1 after a row's last key
template <class F>
void for_each_listed(const View<const Index>& lists, const F& f) {
  for (Index b = 0; b < lists.batch(); ++b) {
    for (Index h = 0; h < lists.heads(); ++h) {
      for (Index n = 0; n < lists.rows(); ++n) {
        for (Index c = 0; c < lists.width() && lists(b, h, n, c) >= 0; ++c) f(n, lists(b, h, n, c));
      }
    }
  }
}

/// Keys and values with places for all rows of the sequence: this rank's, and requested remote
/// ones.
template <class T>
class ListedKeys {
 public:
  /// Allocates memory, kept by `rows` between calls, and copies this rank's keys and values.
  /// \param k, v of its rows
  /// \throws std::bad_alloc
  ListedKeys(const View<const T>& k, const View<const T>& v, const Sharding& rows)
      : rows_(rows),
        tensors_(k.batch(), rows.count(), {{k.heads(), k.width()}, {v.heads(), v.width()}},
                 &rows.kept_memory()) {
    tensors_.expect(rows.own());
    tensors_.put(0, k, rows.own());
    tensors_.put(1, v, rows.own());
  }
  ListedKeys(const ListedKeys&) = delete;
  ListedKeys& operator=(const ListedKeys&) = delete;

  /// The keys, [B, Hk, N, D].
  View<const T> k() const { return tensors_.tensor(0); }
  /// The values, [B, Hk, N, Dv].
  View<const T> v() const { return tensors_.tensor(1); }

  /// Requests rows, and waits for them. Every rank calls it once.
  /// \param needed ascending, disjoint   \throws std::bad_alloc, and std::runtime_error if MPI
  /// fails
  void receive(const std::vector<Range>& needed) {
    const ExchangePlan travels = requested(rows_.ranks(), rows_.layout(), needed);
    tensors_.forget_all_but(travels.with_received(rows_.own(), rows_.count()));
    tensors_.expect(travels.with_received({}, rows_.count()));
    exchange_.emplace(rows_.ranks(), tensors_, std::vector<ExchangePlan>{travels});
    exchange_->begin();
    exchange_->begin_stage(0);
  }

  /// Waits until other ranks have received their requests. Every rank calls it.
  void end() { exchange_->end(); }

 private:
  const Sharding& rows_;
  RowTensors<T> tensors_;
  std::optional<Exchange> exchange_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
