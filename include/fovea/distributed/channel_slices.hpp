// SPDX-License-Identifier: MIT
/// \file
/// A tensor whose channels are spread over ranks instead of its rows: each rank has all rows of
/// some channels.
#pragma once

#include <algorithm>
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
        requests_(2 * static_cast<std::size_t>(size()), MPI_REQUEST_NULL) {
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
    exchange(of_rows_, of_channels_, true);
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
    exchange(of_channels_, of_rows_, false);
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

  /// Sends every rank its part of a buffer, and receives the parts of all.
  /// \param to_channels whether the buffer that is sent is `of_rows_`
  void exchange(Workspace& from, Workspace& to, bool to_channels) {
    const Communicator& ranks = rows_.ranks();
    Index row_at = 0;      // elements
    Index channel_at = 0;  // elements
    for (int rank = 0; rank < size(); ++rank) {
      const auto r = static_cast<std::size_t>(rank);
      const Index own = batch_ * rows_.own_count();              // rows of `count(rank)` channels
      const Index others = batch_ * rows_.layout().count(rank);  // rows of this rank's channels
      const MPI_Datatype of_rank = types_[r].get();
      const MPI_Datatype of_own = types_[static_cast<std::size_t>(ranks.rank())].get();
      T* const in_rows = (to_channels ? from : to).template data<T>() + row_at;
      T* const in_channels = (to_channels ? to : from).template data<T>() + channel_at;
      receive(to_channels ? in_channels : in_rows, to_channels ? others : own,
              to_channels ? of_own : of_rank, rank);
      send(to_channels ? in_rows : in_channels, to_channels ? own : others,
           to_channels ? of_rank : of_own, rank);
      if (rank != ranks.rank()) {
        traffic_.bytes_sent +=
            kElement * (to_channels ? own * count(rank) : others * own_channels());
      }
      row_at += own * count(rank);
      channel_at += others * own_channels();
    }
    detail::add_waiting(traffic_.seconds_waited, [&] {
      ranks.check(
          MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
          "MPI_Waitall");
    });
  }
  void receive(T* to, Index rows, MPI_Datatype type, int rank) {
    const Communicator& ranks = rows_.ranks();
    ranks.check(MPI_Irecv(to, static_cast<int>(rows), type, rank, kTag, ranks.mpi(),
                          &requests_[2 * static_cast<std::size_t>(rank)]),
                "MPI_Irecv");
  }
  void send(const T* from, Index rows, MPI_Datatype type, int rank) {
    const Communicator& ranks = rows_.ranks();
    ranks.check(MPI_Isend(from, static_cast<int>(rows), type, rank, kTag, ranks.mpi(),
                          &requests_[2 * static_cast<std::size_t>(rank) + 1]),
                "MPI_Isend");
  }

  const Rows& rows_;
  Index batch_;
  Index channels_;
  Workspace slice_;                     // [B, 1, L, own channels]
  Workspace of_rows_;                   // [ranks, B, own rows, channels of the rank]
  Workspace of_channels_;               // [ranks, B, rows of the rank, own channels]
  std::vector<MPI_Request> requests_;   // [ranks, 2]
  std::vector<detail::MpiType> types_;  // a row of the channels of each rank
  Traffic traffic_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
