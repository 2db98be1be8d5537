// SPDX-License-Identifier: MIT
/// \file
/// Attention of few query rows over sharded keys: each rank computes segments of its keys, and all
/// ranks merge all segments in order, which preserves the bits of SplitKv.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <limits>
#include <new>
#include <vector>

#include "fovea/attention/softmax/split_kv.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
#include "fovea/distributed/softmax/decode_shares.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The rows of some neighbouring classes of a DecodePlan, for all heads of a batch.
template <class T>
class ShardedSplitKv {
 public:
  /// The arithmetic type.
  using C = Compute<T>;

  /// The state shared by all rows of a decoder's steps.
  struct Decoder {
    const Communicator& ranks;         ///< the ranks
    const KeyBlocks& blocks;           ///< the assignment of keys to ranks
    const HeadGroups& groups;          ///< the groups of query heads
    typename SplitKv<T>::Shape shape;  ///< the sizes
    const detail::MpiType& row;        ///< a row of keys and one of values
    const detail::MpiType& unit;       ///< kUnit numbers of C
  };

  /// The number of elements that a running softmax is a multiple of.
  static constexpr Index kUnit = padded_size(Index{1});

  /// \param plan, shares and the decoder's references must outlive this object
  /// \param first_class the class of the first pattern
  /// \throws std::bad_alloc, also if the exchange exceeds MPI's counts
  ShardedSplitKv(const Decoder& decoder, const DecodePlan& plan, const DecodeShares& shares,
                 Index first_class)
      : decoder_(decoder),
        plan_(plan),
        shares_(shares),
        first_class_(first_class),
        split_(decoder.shape, decoder.groups, plan, first_class) {
    const auto ranks = static_cast<std::size_t>(decoder.ranks.size());
    std::vector<Index> keys(ranks);
    std::vector<Index> parts(ranks);
    for_each_key([&](std::size_t rank, const Place&) { ++keys[rank]; });
    for (const HeadGroups::Group& group : decoder.groups.groups()) {
      const DecodeShares::HeadClass& c = head_class(group);
      own_ += c.own.end - c.own.begin;
      travelling_ += c.travelling;
      row_keys_ += group.count * c.own_pairs + kRowsToRead * c.own_keys;
      for (Index n = c.all.begin; n < c.all.end; ++n) {
        const DecodeShare& share = shares.share(n);
        if (share.travels()) continue;
        parts[static_cast<std::size_t>(share.rank)] +=
            decoder.shape.batch * split_.part_elements(group, plan.item(share.task.item)) / kUnit;
      }
    }
    keys_.set_counts(keys);
    parts_.set_counts(parts);
  }

  /// The number of tasks of this rank.
  Index task_count() const { return decoder_.shape.batch * own_; }

  /// The cost of this rank's tasks in multiply-adds, with keys in the cache.
  double products() const {
    return static_cast<double>(decoder_.shape.batch * row_keys_) *
           static_cast<double>(decoder_.shape.width + decoder_.shape.value_width);
  }

  /// Bytes of scratch memory for that many workers.
  Index scratch_bytes(Index workers) const {
    return split_bytes(workers) + head_bytes(workers) + message_bytes() + travelling_bytes();
  }

  /// Computes the rows on all ranks together, and writes them. All messages are exchanged even if
  /// computing throws; outputs are unspecified then.
  /// \param keys, values this rank's, [B, Hk, keys of the rank, D or Dv]
  /// \param args as in SplitKv::run   \param scratch scratch_bytes(worker_count(executor,
  /// task_count())) bytes, aligned as a Workspace
  /// \returns the exception that computing threw, or null
  template <class Args>
  std::exception_ptr run(const View<const T>& keys, const View<const T>& values, const Args& args,
                         std::byte* scratch, const ExecutorRef& executor) {
    const Index workers = worker_count(executor, task_count());
    copies_ = reinterpret_cast<HeadArgs<T>*>(scratch + split_bytes(workers));
    message_ = scratch + split_bytes(workers) + head_bytes(workers);
    travelled_ = reinterpret_cast<T*>(message_ + message_bytes());
    split_.begin(args, scratch);
    const auto rank = static_cast<std::size_t>(decoder_.ranks.rank());
    decoder_.ranks.add_sent(
        (decoder_.ranks.size() - 1) *
        (keys_.counts[rank] * row_bytes() + parts_.counts[rank] * kUnit * Index{sizeof(C)}));
    decoder_.ranks.wait([&] { bring_keys(keys, values); });
    const std::exception_ptr error = fovea::detail::caught([&] {
      for_each_task(executor, task_count(),
                    [&](Index task, Index worker) { compute(task, worker); });
    });
    decoder_.ranks.wait([&] { share_parts(); });
    split_.merge();
    return error;
  }

 private:
  /// Each rank's message to all, in elements of an MPI type.
  struct Messages {
    std::vector<int> counts;  // [ranks]
    std::vector<int> places;  // [ranks] displacements

    void set_counts(const std::vector<Index>& of_ranks) {
      Index all = 0;
      for (const Index count : of_ranks) {
        all += count;
        if (all > (std::numeric_limits<int>::max)()) FOVEA_THROW(std::bad_array_new_length());
        counts.push_back(static_cast<int>(count));
      }
      set_places();
    }
    void set_places() {
      places.assign(counts.size(), 0);
      for (std::size_t n = 1; n < counts.size(); ++n) places[n] = places[n - 1] + counts[n - 1];
    }
    Index total() const { return Index{places.back()} + counts.back(); }
  };

  /// A key that is sent to all.
  struct Place {
    Index batch;
    Index key_head;
    Index position;
    Index row;  // among all that are sent
  };

  static Index padded_bytes(Index bytes) { return (bytes + 63) / 64 * 64; }

  const DecodeShares::HeadClass& head_class(const HeadGroups::Group& group) const {
    return shares_.head_class(first_class_ + group.head_class);
  }
  Index row_bytes() const {
    return (decoder_.shape.width + decoder_.shape.value_width) * Index{sizeof(T)};
  }
  Index split_bytes(Index workers) const { return padded_bytes(split_.scratch_bytes(workers)); }
  Index head_bytes(Index workers) const {
    return padded_bytes(workers * decoder_.groups.most_heads() * Index{sizeof(HeadArgs<T>)});
  }
  Index message_bytes() const {
    if (decoder_.ranks.size() == 1) return 0;
    return padded_bytes(
        (std::max)(keys_.total() * row_bytes(), parts_.total() * kUnit * Index{sizeof(C)}));
  }
  Index travelling_bytes() const { return decoder_.shape.batch * travelling_ * row_bytes(); }

  /// The keys and values that are sent, [rows, D] and [rows, Dv].
  T* travelled_key(Index row) const { return travelled_ + row * decoder_.shape.width; }
  T* travelled_value(Index row) const {
    return travelled_ + decoder_.shape.batch * travelling_ * decoder_.shape.width +
           row * decoder_.shape.value_width;
  }

  /// Calls f(rank that keeps it, place) for the keys that are sent, in row order.
  template <class F>
  void for_each_key(const F& f) const {
    Index row = 0;
    for (Index b = 0; b < decoder_.shape.batch; ++b) {
      for (const HeadGroups::Group& group : decoder_.groups.groups()) {
        const DecodeShares::HeadClass& c = head_class(group);
        for (Index n = c.all.begin; c.travelling > 0 && n < c.all.end; ++n) {
          const DecodeShare& share = shares_.share(n);
          if (!share.travels()) continue;
          for (Index key = 0; key < share.task.keys; ++key) {
            const Index at = share.first + key * share.step;
            f(static_cast<std::size_t>(decoder_.blocks.rank_of(at)),
              Place{b, group.key_head, at, row++});
          }
        }
      }
    }
  }

  /// Gathers all sent keys on all ranks.
  void bring_keys(const View<const T>& keys, const View<const T>& values) {
    if (keys_.total() == 0 || row_bytes() == 0) return;
    const auto own = static_cast<std::size_t>(decoder_.ranks.rank());
    const Index width = decoder_.shape.width;
    const Index value_width = decoder_.shape.value_width;
    T* to = reinterpret_cast<T*>(message_ + keys_.places[own] * row_bytes());
    for_each_key([&](std::size_t rank, const Place& key) {
      if (rank != own) return;
      const Index place = decoder_.blocks.place(key.position);
      for (Index c = 0; c < width; ++c) *to++ = keys(key.batch, key.key_head, place, c);
      for (Index c = 0; c < value_width; ++c) *to++ = values(key.batch, key.key_head, place, c);
    });
    exchange(keys_, decoder_.row);
    std::vector<int>& next = keys_.places;  // of each rank, restored at the end
    for_each_key([&](std::size_t rank, const Place& key) {
      const T* const from = reinterpret_cast<const T*>(message_ + next[rank]++ * row_bytes());
      std::copy_n(from, width, travelled_key(key.row));
      std::copy_n(from + width, value_width, travelled_value(key.row));
    });
    keys_.set_places();
  }

  /// Computes one task of this rank.
  void compute(Index task, Index worker) const {
    const Index b = task / own_;
    Index n = task % own_;
    Index first_row = b * travelling_;  // of the group's keys that are sent
    split_.for_each_group(b, [&](const HeadGroups::Group& group, C* parts) {
      const DecodeShares::HeadClass& c = head_class(group);
      if (n >= 0 && n < c.own.end - c.own.begin) {
        const DecodeShare& share = shares_.own_share(c.own.begin + n);
        split_.compute(group, share.task, placed(b, group, share, first_row, worker), parts,
                       worker);
      }
      n -= c.own.end - c.own.begin;
      first_row += c.travelling;
    });
  }

  /// The arguments of a group's heads for the keys of the share.
  const HeadArgs<T>* placed(Index b, const HeadGroups::Group& group, const DecodeShare& share,
                            Index first_row, Index worker) const {
    const HeadArgs<T>* const heads = split_.heads(KeySource::recent, b, group);
    HeadArgs<T>* const copies = copies_ + worker * decoder_.groups.most_heads();
    for (Index n = 0; n < group.count; ++n) {
      HeadArgs<T>& args = *::new (copies + n) HeadArgs<T>(heads[n]);
      args.key_rows = share.key_rows;
      if (!share.travels()) continue;
      args.k = {travelled_key(first_row), decoder_.shape.width, 1};
      args.v = {travelled_value(first_row), decoder_.shape.value_width, 1};
    }
    return copies;
  }

  /// Calls f(rank, running softmax, its elements) for all segments that one rank computes.
  template <class F>
  void for_each_part(const F& f) const {
    for (Index b = 0; b < decoder_.shape.batch; ++b) {
      split_.for_each_group(b, [&](const HeadGroups::Group& group, C* parts) {
        const Range all = head_class(group).all;
        for (Index n = all.begin; n < all.end; ++n) {
          const DecodeShare& share = shares_.share(n);
          if (share.travels() || share.task.segment_count == 0) continue;
          const DecodePlan::Item& item = plan_.item(share.task.item);
          f(static_cast<std::size_t>(share.rank),
            split_.part(group, item, parts, share.task.first_segment),
            split_.part_elements(group, item));
        }
      });
    }
  }

  /// Gathers the running softmaxes of all segments on all ranks.
  void share_parts() {
    if (decoder_.ranks.size() == 1 || parts_.total() == 0) return;
    const auto own = static_cast<std::size_t>(decoder_.ranks.rank());
    C* const all = reinterpret_cast<C*>(message_);
    C* to = all + parts_.places[own] * kUnit;
    for_each_part([&](std::size_t rank, const C* part, Index elements) {
      if (rank == own) to = std::copy_n(part, elements, to);
    });
    exchange(parts_, decoder_.unit);
    std::vector<int>& next = parts_.places;  // of each rank, restored at the end
    for_each_part([&](std::size_t rank, C* part, Index elements) {
      if (rank != own) std::copy_n(all + next[rank] * kUnit, elements, part);
      next[rank] += static_cast<int>(elements / kUnit);
    });
    parts_.set_places();
  }

  /// Gathers each rank's part of the message on all ranks.
  void exchange(const Messages& messages, const detail::MpiType& type) const {
    decoder_.ranks.check(
        MPI_Allgatherv(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, message_, messages.counts.data(),
                       messages.places.data(), type.get(), decoder_.ranks.mpi()),
        "MPI_Allgatherv");
  }

  Decoder decoder_;
  const DecodePlan& plan_;
  const DecodeShares& shares_;
  Index first_class_;
  SplitKv<T> split_;
  Index own_ = 0;                  // shares of this rank, for one batch entry
  Index travelling_ = 0;           // keys that are sent, of one batch entry
  Index row_keys_ = 0;             // of this rank, for one batch entry, see kRowsToRead
  Messages keys_;                  // in rows
  Messages parts_;                 // in units
  HeadArgs<T>* copies_ = nullptr;  // [workers, most heads]
  std::byte* message_ = nullptr;   // of all ranks: sent keys, then running softmaxes
  T* travelled_ = nullptr;         // [rows, D], followed by [rows, Dv]
};

}  // namespace distributed

FOVEA_NAMESPACE_END
