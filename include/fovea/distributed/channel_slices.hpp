// SPDX-License-Identifier: MIT
/// \file
/// A tensor whose channels are spread over ranks instead of its rows: each rank has all rows of
/// some channels.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "fovea/core/view.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/distributed/mpi_type.hpp"
#include "fovea/distributed/row_set.hpp"
#include "fovea/distributed/rows.hpp"
#include "fovea/distributed/traffic.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The slices of one tensor [B, H, L, W] whose rows are spread over ranks: each rank has all rows
/// of some of the C = H W channels, where channel c is column c % W of head c / W.
template <class T>
class ChannelSlices {
 public:
  /// Takes all memory. Rank r of R has channels [C r / R, C (r + 1) / R).
  /// \param rows must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ChannelSlices(const Rows& rows, Index batch, Index channels)
      : ChannelSlices(rows.ranks(), rows.layout(), batch, equal_parts(channels, rows.ranks())) {}

  /// Takes all memory.
  /// \param ranks, layout must outlive this object
  /// \param channels [ranks] ranges of channels, which stand in a slice one after the other. Some
  /// may be on several ranks, or twice on one, if nothing is brought back, and some on none.
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  ChannelSlices(const Communicator& ranks, const RowLayout& layout, Index batch,
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
  ChannelSlices(const ChannelSlices&) = delete;
  ChannelSlices& operator=(const ChannelSlices&) = delete;

  /// All rows of this rank's channels, [B, 1, L, own channels].
  View<T> slice() {
    return View<T>(slice_.template data<T>(), {batch_, 1, layout_.rows(), own_channels()});
  }
  /// The same of channels that are whole heads, [B, own heads, L, W].
  View<T> heads(Index width) {
    const Index count = width == 0 ? 0 : own_channels() / width;
    return View<T>(slice_.template data<T>(), {batch_, count, layout_.rows(), width},
                   {layout_.rows() * own_channels(), width, own_channels(), 1});
  }
  /// The messages of this rank so far.
  Traffic traffic() const { return traffic_; }

  /// Makes the slices of the rows of all ranks. \param own [B, H, own rows, W]
  void bring(const View<const T>& own) {
    T* to = of_rows_.template data<T>();
    for_each_own_element(own, [&](const T& element) { *to++ = element; });
    exchange(true);
    const T* from = of_channels_.template data<T>();
    const View<T> whole = slice();
    for_each_row_of_ranks([&](Index b, Index n) {
      for (Index c = 0; c < own_channels(); ++c) whole(b, 0, n, c) = *from++;
    });
  }

  /// Makes the rows of all ranks of the slices. \param own [B, H, own rows, W], written; none: not
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
    for_each_own_element(own, [&](T& element) { element = *from++; });
  }

 private:
  static constexpr Index kElement = sizeof(T);
  static constexpr int kTag = 3;

  /// The channels of ranks that have as many as may be of the same.
  static std::vector<std::vector<Range>> equal_parts(Index channels, const Communicator& ranks) {
    std::vector<std::vector<Range>> parts;
    const Index size = ranks.size();
    for (Index rank = 0; rank < size; ++rank) {
      parts.push_back({{channels * rank / size, channels * (rank + 1) / size}});
    }
    return parts;
  }
  /// [ranks + 1] how many channels the ranks before each have.
  static std::vector<Index> begins(const std::vector<std::vector<Range>>& channels) {
    std::vector<Index> sums = {0};
    for (const std::vector<Range>& of : channels) sums.push_back(sums.back() + row_count(of));
    return sums;
  }

  int size() const { return ranks_.size(); }
  /// How many channels the ranks before one have.
  Index begin(int rank) const { return begins_[static_cast<std::size_t>(rank)]; }
  Index count(int rank) const { return begin(rank + 1) - begin(rank); }
  Index own_channels() const { return count(ranks_.rank()); }

  /// Calls f(element) for all elements of this rank's rows, by the rank that has the channel.
  template <class X, class F>
  void for_each_own_element(const View<X>& own, const F& f) const {
    for (const std::vector<Range>& of : channels_) {
      for (Index b = 0; b < batch_; ++b) {
        for (Index n = 0; n < own_rows_; ++n) {
          for (const Range& range : of) {
            for (Index c = range.begin; c < range.end;) {
              const Index head = c / own.width();
              const Index first = c % own.width();
              const Index end = (std::min)(own.width(), first + range.end - c);
              for (Index w = first; w < end; ++w) f(own(b, head, n, w));
              c += end - first;
            }
          }
        }
      }
    }
  }
  /// Calls f(b, n) for the rows of the sequence, by rank.
  template <class F>
  void for_each_row_of_ranks(const F& f) const {
    for (int rank = 0; rank < size(); ++rank) {
      for (Index b = 0; b < batch_; ++b) {
        for (const Range& range : layout_.of(rank)) {
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
    return part(of_rows_, own_rows_ * (batch_ * begin(rank) + b * count(rank)), own_rows_, rank);
  }
  /// The rows of a rank of this rank's channels. \param before rows of the ranks before it
  Part part_of_channels(int rank, Index b, Index before) {
    const Index rows = layout_.count(rank);
    return part(of_channels_, own_channels() * (batch_ * before + b * rows), rows, ranks_.rank());
  }
  /// \param rank whose channels they are
  Part part(Workspace& buffer, Index first, Index rows, int rank) {
    return {buffer.template data<T>() + first, rows, types_[static_cast<std::size_t>(rank)].get(),
            rows * count(rank) * kElement};
  }

  /// Sends every rank its part of one buffer, and receives the parts of all in the other. A message
  /// is that of one batch entry, so that its rows can be counted in int.
  void exchange(bool to_channels) {
    std::size_t request = 0;
    Index before = 0;
    for (int rank = 0; rank < size(); ++rank) {
      for (Index b = 0; b < batch_; ++b) {
        const Part rows = part_of_rows(rank, b);
        const Part channels = part_of_channels(rank, b, before);
        const auto& [in, out] = to_channels ? std::pair{channels, rows} : std::pair{rows, channels};
        ranks_.check(MPI_Irecv(in.data, static_cast<int>(in.rows), in.row, rank, kTag, ranks_.mpi(),
                               &requests_[request++]),
                     "MPI_Irecv");
        ranks_.check(MPI_Isend(out.data, static_cast<int>(out.rows), out.row, rank, kTag,
                               ranks_.mpi(), &requests_[request++]),
                     "MPI_Isend");
        if (rank != ranks_.rank()) traffic_.bytes_sent += out.bytes;
      }
      before += layout_.count(rank);
    }
    detail::add_waiting(traffic_.seconds_waited, [&] {
      ranks_.check(
          MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE),
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
  Traffic traffic_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
