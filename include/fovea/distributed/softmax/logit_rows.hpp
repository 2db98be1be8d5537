// SPDX-License-Identifier: MIT
/// \file
/// A bias or mask in the distributed backward pass: the rows of a rank's queries, and those of
/// remote queries for the rank's keys, received from their ranks.
#pragma once

#include <cstddef>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/messages/exchange_plan.hpp"
#include "fovea/distributed/messages/packed_messages.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Rows of logits exchanged with another rank, in some columns.
struct LogitTransfer {
  int rank = 0;                ///< the other rank
  std::vector<Range> rows;     ///< of its queries or this rank's, ascending, disjoint
  std::vector<Range> columns;  ///< the receiver's keys that these rows see, likewise
};

/// One rank's sends and receives of logits.
struct LogitTransfers {
  std::vector<LogitTransfer> sends;     ///< by ascending rank
  std::vector<LogitTransfer> receives;  ///< likewise

  LogitTransfers() = default;
  /// \param queries the exchange of query rows with the keys that they see
  LogitTransfers(const ExchangePlan& queries, const HeadPlans& plans, const Sharding& rows) {
    const auto add = [&](std::vector<LogitTransfer>& to, const Transfer& t, int receiver) {
      to.push_back(
          {t.rank, t.rows,
           intersection(keys_seen(plans, t.rows, rows.count()), rows.layout().of(receiver))});
    };
    for (const Transfer& t : queries.sends) add(sends, t, t.rank);
    for (const Transfer& t : queries.receives) add(receives, t, rows.ranks().rank());
  }
};

/// One bias or mask, with addresses for all pairs of the sequence; only written pages are
/// allocated.
/// \tparam U number or bool
template <class U>
class LogitRows {
 public:
  /// Allocates all memory.
  /// \param local [1 or B, 1 or Hq, own rows, 1 or N]; if empty, nothing is sent
  /// \param has_one_row whether all ranks share a single row; then nothing is sent
  /// \param transfers must outlive this object
  /// \throws std::bad_alloc
  LogitRows(const View<const U>& local, bool has_one_row, const LogitTransfers& transfers,
            const Sharding& rows)
      : rows_(rows), local_(local), messages_(rows.ranks(), kTag) {
    if (has_one_row || local.empty()) return;
    transfers_ = &transfers;
    all_ = RowTensors<U>(local.batch(), rows.count(), {{local.heads(), local.width()}});
    messages_.reserve(transfers, [&](const LogitTransfer& t) { return row_bytes(t); });
  }

  /// The rows of all queries: this rank's with all columns, others with received ones.
  View<const U> view() const { return transfers_ == nullptr ? local_ : all_.tensor(0); }

  /// Copies the rows of this rank, and exchanges the others. Collective.
  /// \throws std::runtime_error if MPI fails
  void run() {
    if (transfers_ == nullptr) return;
    all_.put(0, local_, rows_.own());
    const Communicator& ranks = rows_.ranks();
    for (const LogitTransfer& to : transfers_->sends) {
      ranks.add_sent(Workspace::size_of(row_count(to.rows), row_bytes(to)));
    }
    ranks.wait([&] {
      messages_.run(
          *transfers_, [&](const LogitTransfer& t) { return row_bytes(t); },
          [&](const LogitTransfer& t, const auto& f) { for_each_piece(t, f); });
    });
  }

 private:
  static constexpr int kTag = 4;

  /// The columns of a transfer that exist.
  std::vector<Range> columns_of(const LogitTransfer& t) const {
    return local_.width() == 1 ? std::vector<Range>{{0, 1}} : t.columns;
  }
  /// The bytes of a row of a transfer, in all heads.
  Index row_bytes(const LogitTransfer& t) const {
    return local_.batch() * local_.heads() * row_count(columns_of(t)) * Index{sizeof(U)};
  }

  /// Calls f(some columns of a row of a transfer, their bytes).
  template <class F>
  void for_each_piece(const LogitTransfer& t, const F& f) const {
    const View<U> all = all_.tensor(0);
    const std::vector<Range> columns = columns_of(t);
    for (const Range& range : t.rows) {
      for (Index n = range.begin; n < range.end; ++n) {
        for (Index b = 0; b < all.batch(); ++b) {
          for (Index h = 0; h < all.heads(); ++h) {
            for (const Range& some : columns) {
              f(&all(b, h, n, some.begin),
                static_cast<std::size_t>(some.end - some.begin) * sizeof(U));
            }
          }
        }
      }
    }
  }

  const Sharding& rows_;
  View<const U> local_;
  const LogitTransfers* transfers_ = nullptr;  // null if nothing is sent
  RowTensors<U> all_;                          // [B, H, N, N], unless nothing is sent
  PackedMessages messages_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
