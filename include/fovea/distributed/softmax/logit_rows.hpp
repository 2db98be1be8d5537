// SPDX-License-Identifier: MIT
/// \file
/// A bias or mask in the distributed backward pass: the rows of a rank's queries, and those of
/// remote queries for the rank's keys, received from their ranks.
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "fovea/core/workspace.hpp"
#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/messages/exchange_plan.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
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
/// allocated. A rank sends to one other rank at a time and receives from one.
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
      : rows_(rows), local_(local) {
    if (has_one_row || local.empty()) return;
    transfers_ = &transfers;
    all_ = RowTensors<U>(local.batch(), rows.count(), {{local.heads(), local.width()}});
    sent_ = Workspace(most_bytes(transfers.sends));
    received_ = Workspace(most_bytes(transfers.receives));
  }

  /// The rows of all queries: this rank's with all columns, others with received ones.
  View<const U> view() const { return transfers_ == nullptr ? local_ : all_.tensor(0); }

  /// Copies the rows of this rank, and exchanges the others. Collective.
  /// \throws std::runtime_error if MPI fails
  void run() {
    if (transfers_ == nullptr) return;
    all_.put(0, local_, rows_.own());
    const Communicator& ranks = rows_.ranks();
    for (const LogitTransfer& to : transfers_->sends) ranks.add_sent(bytes_of(to));
    ranks.wait([&] {
      for (int n = 1; n < ranks.size(); ++n) {
        const auto* const to = of_rank(transfers_->sends, (ranks.rank() + n) % ranks.size());
        const auto* const from =
            of_rank(transfers_->receives, (ranks.rank() - n + ranks.size()) % ranks.size());
        move(to, from);
      }
    });
  }

 private:
  static constexpr int kTag = 4;

  static const LogitTransfer* of_rank(const std::vector<LogitTransfer>& all, int rank) {
    const auto found = std::ranges::find(all, rank, &LogitTransfer::rank);
    return found == all.end() ? nullptr : &*found;
  }

  /// The columns of a transfer that exist.
  std::vector<Range> columns_of(const LogitTransfer& t) const {
    return local_.width() == 1 ? std::vector<Range>{{0, 1}} : t.columns;
  }
  /// The bytes of a row of a transfer, in all heads.
  Index row_bytes(const LogitTransfer& t) const {
    return local_.batch() * local_.heads() * row_count(columns_of(t)) * Index{sizeof(U)};
  }
  Index bytes_of(const LogitTransfer& t) const {
    return Workspace::size_of(row_count(t.rows), row_bytes(t));
  }
  Index most_bytes(const std::vector<LogitTransfer>& all) const {
    Index most = 0;
    for (const LogitTransfer& t : all) most = (std::max)(most, bytes_of(t));
    return most;
  }

  /// Sends to one rank and receives from another, if given.
  void move(const LogitTransfer* to, const LogitTransfer* from) {
    const Communicator& ranks = rows_.ranks();
    std::array<MPI_Request, 2> requests = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    if (from != nullptr) {
      const detail::MpiType row = detail::MpiType::row(ranks, row_bytes(*from));
      ranks.check(MPI_Irecv(received_.data<std::byte>(), static_cast<int>(row_count(from->rows)),
                            row.get(), from->rank, kTag, ranks.mpi(), &requests[0]),
                  "MPI_Irecv");
    }
    if (to != nullptr) {
      for_each_piece(*to, sent_,
                     [](U* packed, U* row, Index count) { std::copy_n(row, count, packed); });
      const detail::MpiType row = detail::MpiType::row(ranks, row_bytes(*to));
      ranks.check(MPI_Isend(sent_.data<std::byte>(), static_cast<int>(row_count(to->rows)),
                            row.get(), to->rank, kTag, ranks.mpi(), &requests[1]),
                  "MPI_Isend");
    }
    for (MPI_Request& request : requests) {
      ranks.check(MPI_Wait(&request, MPI_STATUS_IGNORE), "MPI_Wait");
    }
    if (from == nullptr) return;
    for_each_piece(*from, received_,
                   [](U* packed, U* row, Index count) { std::copy_n(packed, count, row); });
  }

  /// Calls f(place in the message, place of some columns of a row, their number).
  template <class F>
  void for_each_piece(const LogitTransfer& t, Workspace& message, const F& f) const {
    const View<U> all = all_.tensor(0);
    const std::vector<Range> columns = columns_of(t);
    U* packed = message.template data<U>();
    for (const Range& range : t.rows) {
      for (Index n = range.begin; n < range.end; ++n) {
        for (Index b = 0; b < all.batch(); ++b) {
          for (Index h = 0; h < all.heads(); ++h) {
            for (const Range& some : columns) {
              f(packed, &all(b, h, n, some.begin), some.end - some.begin);
              packed += some.end - some.begin;
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
  Workspace sent_;                             // the largest transfer to another rank
  Workspace received_;                         // and from one
};

}  // namespace distributed

FOVEA_NAMESPACE_END
