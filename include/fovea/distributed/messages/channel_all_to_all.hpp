// SPDX-License-Identifier: MIT
/// \file
/// A tensor sharded by channels instead of rows: each rank has all rows of some channels.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The slices of a tensor [B, H, L, W] whose rows are sharded: each rank has all rows of some of
/// the C = H W channels, where channel c is column c % W of head c / W.
template <class T>
class ChannelAllToAll {
 public:
  /// Allocates all memory. Rank r of R has channels [C r / R, C (r + 1) / R).
  /// \param rows must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ChannelAllToAll(const Sharding& rows, Index batch, Index channels)
      : ChannelAllToAll(rows.ranks(), rows.layout(), batch, equal_parts(channels, rows.ranks())) {}

  /// Allocates all memory.
  /// \param ranks, layout must outlive this object
  /// \param channels [ranks] ranges of channels, stored contiguously in a slice. If nothing is
  /// brought back, channels may be on several ranks, twice on one, or on none.
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ChannelAllToAll(const Communicator& ranks, const RowLayout& layout, Index batch,
                  std::vector<std::vector<Range>> channels)
      : ranks_(ranks),
        layout_(layout),
        batch_(batch),
        channels_(std::move(channels)),
        begins_(begins(channels_)),
        own_rows_(layout.count(ranks.rank())),
        slice_(batch * layout.rows(), own_channels() * kElement),
        of_rows_(batch * own_rows_, begins_.back() * kElement),
        of_channels_(batch * layout.rows(), own_channels() * kElement),
        requests_(2 * static_cast<std::size_t>(size() * batch), MPI_REQUEST_NULL) {
    for (int rank = 0; rank < size(); ++rank) {
      types_.push_back(detail::MpiType::row(ranks, count(rank) * kElement));
    }
  }
  ChannelAllToAll(const ChannelAllToAll&) = delete;
  ChannelAllToAll& operator=(const ChannelAllToAll&) = delete;

  /// All rows of this rank's channels, [B, 1, L, own channels].
  View<T> slice() {
    return View<T>(slice_.template data<T>(), {batch_, 1, layout_.rows(), own_channels()});
  }
  /// The same for channels that are whole heads, [B, own heads, L, W]. \param count of own heads
  View<T> heads(Index count, Index width) {
    return View<T>(slice_.template data<T>(), {batch_, count, layout_.rows(), width},
                   {layout_.rows() * own_channels(), width, own_channels(), 1});
  }

  /// Computes the slices from the rows of all ranks (all-to-all). \param own [B, H, own rows, W]
  void bring(const View<const T>& own) {
    T* to = of_rows_.template data<T>();
    for_each_own_piece(own, [&](bool stays, const T* from, Index stride, Index count, T* kept) {
      copy(from, stride, stays ? kept : to, 1, count);
      to += count;
    });
    exchange(true);
    for_each_row_of_others([&](T* row, T* received) { copy(received, 1, row, 1, own_channels()); });
  }

  /// The reverse. \param own [B, H, own rows, W], written; empty if not requested
  void bring_back(const View<T>& own) {
    for_each_row_of_others([&](T* row, T* sent) { copy(row, 1, sent, 1, own_channels()); });
    exchange(false);
    if (own.empty()) return;
    const T* from = of_rows_.template data<T>();
    for_each_own_piece(own, [&](bool stays, T* to, Index stride, Index count, const T* kept) {
      copy(stays ? kept : from, 1, to, stride, count);
      from += count;
    });
  }

 private:
  static constexpr Index kElement = sizeof(T);
  static constexpr int kTag = 3;

  /// Nearly equal shares of channels for all ranks.
  static std::vector<std::vector<Range>> equal_parts(Index channels, const Communicator& ranks) {
    std::vector<std::vector<Range>> parts;
    const Index size = ranks.size();
    for (Index rank = 0; rank < size; ++rank) {
      parts.push_back({{channels * rank / size, channels * (rank + 1) / size}});
    }
    return parts;
  }
  /// [ranks + 1] the number of channels on preceding ranks.
  static std::vector<Index> begins(const std::vector<std::vector<Range>>& channels) {
    std::vector<Index> sums = {0};
    for (const std::vector<Range>& of : channels) sums.push_back(sums.back() + row_count(of));
    return sums;
  }

  int size() const { return ranks_.size(); }
  /// The number of channels on preceding ranks.
  Index begin(int rank) const { return begins_[static_cast<std::size_t>(rank)]; }
  Index count(int rank) const { return begin(rank + 1) - begin(rank); }
  Index own_channels() const { return count(ranks_.rank()); }

  static void copy(const T* from, Index from_stride, T* to, Index to_stride, Index count) {
    if (from_stride == 1 && to_stride == 1) {
      std::copy_n(from, count, to);
      return;
    }
    for (Index c = 0; c < count; ++c) to[c * to_stride] = from[c * from_stride];
  }

  /// A row of the slice.
  T* slice_row(Index b, Index row) {
    return slice_.template data<T>() + (b * layout_.rows() + row) * own_channels();
  }

  /// Calls f(stays, columns, their stride, their number, place in the slice) for the columns of
  /// each head of this rank's rows, by the rank that has the channels; `stays` is set, and the
  /// place valid, if it is this rank.
  template <class X, class F>
  void for_each_own_piece(const View<X>& own, const F& f) {
    for (int rank = 0; rank < size(); ++rank) {
      const bool stays = rank == ranks_.rank();
      for (Index b = 0; b < batch_; ++b) {
        for_each_own_row([&](Index place, Index row) {
          T* kept = stays ? slice_row(b, row) : nullptr;
          for_each_piece(rank, own.width(), [&](Index head, Index first, Index count) {
            f(stays, &own(b, head, place, first), own.strides()[3], count, kept);
            kept += stays ? count : 0;
          });
        });
      }
    }
  }
  /// Calls f(place among this rank's rows, row of the sequence).
  template <class F>
  void for_each_own_row(const F& f) const {
    Index place = 0;
    for (const Range& range : layout_.of(ranks_.rank())) {
      for (Index row = range.begin; row < range.end; ++row) f(place++, row);
    }
  }
  /// Calls f(head, first column, number) for the channels of a rank. \param width columns of a head
  template <class F>
  void for_each_piece(int rank, Index width, const F& f) const {
    for (const Range& range : channels_[static_cast<std::size_t>(rank)]) {
      for (Index c = range.begin; c < range.end;) {
        const Index first = c % width;
        const Index count = (std::min)(width - first, range.end - c);
        f(c / width, first, count);
        c += count;
      }
    }
  }
  /// Calls f(row of the slice, row of the buffer) for the rows of the other ranks, by rank.
  template <class F>
  void for_each_row_of_others(const F& f) {
    T* buffer = of_channels_.template data<T>();
    for (int rank = 0; rank < size(); ++rank) {
      if (rank == ranks_.rank()) {
        buffer += batch_ * own_rows_ * own_channels();
        continue;
      }
      for (Index b = 0; b < batch_; ++b) {
        for (const Range& range : layout_.of(rank)) {
          for (Index row = range.begin; row < range.end; ++row, buffer += own_channels()) {
            f(slice_row(b, row), buffer);
          }
        }
      }
    }
  }

  /// One rank's part of a batch entry of another's rows or channels, in a buffer.
  struct Part {
    T* data;
    Index rows;
    MPI_Datatype row;
    Index bytes;
  };
  /// This rank's rows of the channels of a rank.
  Part part_of_rows(int rank, Index b) {
    return part(of_rows_, own_rows_ * (batch_ * begin(rank) + b * count(rank)), own_rows_, rank);
  }
  /// The rows of a rank of this rank's channels. \param before rows of the ranks before it
  Part part_of_channels(int rank, Index b, Index before) {
    const Index rows = layout_.count(rank);
    return part(of_channels_, own_channels() * (batch_ * before + b * rows), rows, ranks_.rank());
  }
  /// \param rank the owner of the channels
  Part part(Workspace& buffer, Index first, Index rows, int rank) {
    return {buffer.template data<T>() + first, rows, types_[static_cast<std::size_t>(rank)].get(),
            rows * count(rank) * kElement};
  }

  /// Sends every other rank its part of one buffer, and receives their parts in the other. A
  /// message holds one batch entry, so that an int can count its rows.
  void exchange(bool to_channels) {
    std::size_t request = 0;
    Index before = 0;
    for (int rank = 0; rank < size(); ++rank) {
      for (Index b = 0; rank != ranks_.rank() && b < batch_; ++b) {
        const Part rows = part_of_rows(rank, b);
        const Part channels = part_of_channels(rank, b, before);
        const auto& [in, out] = to_channels ? std::pair{channels, rows} : std::pair{rows, channels};
        ranks_.check(MPI_Irecv(in.data, static_cast<int>(in.rows), in.row, rank, kTag, ranks_.mpi(),
                               &requests_[request++]),
                     "MPI_Irecv");
        ranks_.check(MPI_Isend(out.data, static_cast<int>(out.rows), out.row, rank, kTag,
                               ranks_.mpi(), &requests_[request++]),
                     "MPI_Isend");
        ranks_.add_sent(out.bytes);
      }
      before += layout_.count(rank);
    }
    ranks_.wait([&] {
      ranks_.check(MPI_Waitall(static_cast<int>(request), requests_.data(), MPI_STATUSES_IGNORE),
                   "MPI_Waitall");
    });
  }

  const Communicator& ranks_;
  const RowLayout& layout_;
  Index batch_;
  std::vector<std::vector<Range>> channels_;  // [ranks] ranges
  std::vector<Index> begins_;
  Index own_rows_;
  Workspace slice_;                     // [B, 1, L, own channels]
  Workspace of_rows_;                   // [ranks, B, own rows, channels of the rank]
  Workspace of_channels_;               // [ranks, B, rows of the rank, own channels]
  std::vector<MPI_Request> requests_;   // [ranks, B, 2]
  std::vector<detail::MpiType> types_;  // a row of the channels of each rank
};

}  // namespace distributed

FOVEA_NAMESPACE_END
