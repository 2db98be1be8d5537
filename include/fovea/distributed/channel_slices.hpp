// SPDX-License-Identifier: MIT
/// \file
/// A tensor whose channels are spread over ranks instead of its rows: each rank has all rows of
/// some channels.
#pragma once

#include <utility>
#include <vector>

#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/distributed/mpi_type.hpp"
#include "fovea/distributed/rows.hpp"
#include "fovea/distributed/traffic.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The slices of one tensor [B, 1, L, C]: rank r of R has channels [C r / R, C (r + 1) / R).
template <class T>
class ChannelSlices {
 public:
  /// Takes all memory.
  /// \param rows must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ChannelSlices(const Rows& rows, Index batch, Index channels)
      : rows_(rows),
        batch_(batch),
        channels_(channels),
        slice_(batch * rows.count(), own_channels() * kElement),
        of_rows_(batch * rows.own_count(), channels * kElement),
        of_channels_(batch * rows.count(), own_channels() * kElement),
        requests_(2 * static_cast<std::size_t>(size() * batch), MPI_REQUEST_NULL) {
    for (int rank = 0; rank < size(); ++rank) {
      types_.push_back(detail::MpiType::row(rows.ranks(), count(rank) * kElement));
    }
  }
  ChannelSlices(const ChannelSlices&) = delete;
  ChannelSlices& operator=(const ChannelSlices&) = delete;

  /// All rows of this rank's channels, [B, 1, L, own channels].
  View<T> slice() {
    return View<T>(slice_.template data<T>(), {batch_, 1, rows_.count(), own_channels()});
  }
  /// The messages of this rank so far.
  Traffic traffic() const { return traffic_; }

  /// Makes the slices of the rows of all ranks. \param own [B, 1, own rows, C]
  void bring(const View<const T>& own) {
    T* to = of_rows_.template data<T>();
    for (int rank = 0; rank < size(); ++rank) {
      for_each_own_row([&](Index b, Index n) {
        for (Index c = begin(rank); c < begin(rank + 1); ++c) *to++ = own(b, 0, n, c);
      });
    }
    exchange(true);
    const T* from = of_channels_.template data<T>();
    const View<T> whole = slice();
    for_each_row_of_ranks([&](Index b, Index n) {
      for (Index c = 0; c < own_channels(); ++c) whole(b, 0, n, c) = *from++;
    });
  }

  /// Makes the rows of all ranks of the slices. \param own [B, 1, own rows, C], written; none: not
  /// wanted
  void bring_back(const View<T>& own) {
    T* to = of_channels_.template data<T>();
    const View<T> whole = slice();
    for_each_row_of_ranks([&](Index b, Index n) {
      for (Index c = 0; c < own_channels(); ++c) *to++ = whole(b, 0, n, c);
    });
    exchange(false);
    if (own.is_none()) return;
    const T* from = of_rows_.template data<T>();
    for (int rank = 0; rank < size(); ++rank) {
      for_each_own_row([&](Index b, Index n) {
        for (Index c = begin(rank); c < begin(rank + 1); ++c) own(b, 0, n, c) = *from++;
      });
    }
  }

 private:
  static constexpr Index kElement = sizeof(T);
  static constexpr int kTag = 3;

  int size() const { return rows_.ranks().size(); }
  /// The first channel of a rank.
  Index begin(int rank) const { return channels_ * rank / size(); }
  Index count(int rank) const { return begin(rank + 1) - begin(rank); }
  Index own_channels() const { return count(rows_.ranks().rank()); }

  template <class F>
  void for_each_own_row(const F& f) const {
    for (Index b = 0; b < batch_; ++b) {
      for (Index n = 0; n < rows_.own_count(); ++n) f(b, n);
    }
  }
  /// Calls f(b, n) for the rows of the sequence, by rank.
  template <class F>
  void for_each_row_of_ranks(const F& f) const {
    for (int rank = 0; rank < size(); ++rank) {
      for (Index b = 0; b < batch_; ++b) {
        for (const Range& range : rows_.layout().of(rank)) {
          for (Index n = range.begin; n < range.end; ++n) f(b, n);
        }
      }
    }
  }

  /// What one rank has of a batch entry of another's rows or channels, in a buffer.
  struct Part {
    T* data;
    Index rows;
    MPI_Datatype row;
    Index bytes;
  };
  /// This rank's rows of the channels of a rank.
  Part part_of_rows(int rank, Index b) {
    const Index own = rows_.own_count();
    return part(of_rows_, own * (batch_ * begin(rank) + b * count(rank)), own, rank);
  }
  /// The rows of a rank of this rank's channels. \param before rows of the ranks before it
  Part part_of_channels(int rank, Index b, Index before) {
    const Index rows = rows_.layout().count(rank);
    return part(of_channels_, own_channels() * (batch_ * before + b * rows), rows,
                rows_.ranks().rank());
  }
  /// \param rank whose channels they are
  Part part(Workspace& buffer, Index first, Index rows, int rank) {
    return {buffer.template data<T>() + first, rows, types_[static_cast<std::size_t>(rank)].get(),
            rows * count(rank) * kElement};
  }

  /// Sends every rank its part of one buffer, and receives the parts of all in the other. A message
  /// is that of one batch entry, so that its rows can be counted in int.
  void exchange(bool to_channels) {
    const Communicator& ranks = rows_.ranks();
    std::size_t request = 0;
    Index before = 0;
    for (int rank = 0; rank < size(); ++rank) {
      for (Index b = 0; b < batch_; ++b) {
        const Part rows = part_of_rows(rank, b);
        const Part channels = part_of_channels(rank, b, before);
        const auto& [in, out] = to_channels ? std::pair{channels, rows} : std::pair{rows, channels};
        ranks.check(MPI_Irecv(in.data, static_cast<int>(in.rows), in.row, rank, kTag, ranks.mpi(),
                              &requests_[request++]),
                    "MPI_Irecv");
        ranks.check(MPI_Isend(out.data, static_cast<int>(out.rows), out.row, rank, kTag,
                              ranks.mpi(), &requests_[request++]),
                    "MPI_Isend");
        if (rank != ranks.rank()) traffic_.bytes_sent += out.bytes;
      }
      before += rows_.layout().count(rank);
    }
    detail::add_waiting(traffic_.seconds_waited, [&] {
      ranks.check(
          MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
          "MPI_Waitall");
    });
  }

  const Rows& rows_;
  Index batch_;
  Index channels_;
  Workspace slice_;                     // [B, 1, L, own channels]
  Workspace of_rows_;                   // [ranks, B, own rows, channels of the rank]
  Workspace of_channels_;               // [ranks, B, rows of the rank, own channels]
  std::vector<MPI_Request> requests_;   // [ranks, B, 2]
  std::vector<detail::MpiType> types_;  // a row of the channels of each rank
  Traffic traffic_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
