// SPDX-License-Identifier: MIT
/// \file
/// All-to-all by heads: tensors sharded by rows are redistributed so that each rank has all rows of
/// some heads, and back.
#pragma once

#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "fovea/core/executor_ref.hpp"
#include "fovea/distributed/messages/channel_all_to_all.hpp"
#include "fovea/distributed/messages/collective_check.hpp"
#include "fovea/distributed/messages/pass.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The tensors of a call that is sharded by heads, for operators whose visible keys depend on all
/// rows. A key head and its query heads are a group; rank r of R has the groups [G r / R, G (r + 1)
/// / R), so that with fewer groups than ranks some ranks have none.
///
/// Of every tensor, the rank's rows of other ranks' heads are sent once. Memory: three times the
/// rows of the rank's heads, which are as many numbers as its own rows.
template <class T>
class HeadAllToAll {
 public:
  /// \param ranks must outlive this object   \param batch sequences   \param groups G
  HeadAllToAll(const Communicator& ranks, Index batch, Index groups)
      : ranks_(ranks), batch_(batch), groups_(groups) {}
  HeadAllToAll(const HeadAllToAll&) = delete;
  HeadAllToAll& operator=(const HeadAllToAll&) = delete;

  /// Whether this rank has no heads.
  bool has_none() const { return groups_of(ranks_.rank()).is_empty(); }

  /// Adds a tensor that the call reads. All ranks add the same ones, in the same order.
  /// \param own [B, heads, own rows, width]   \param layout of its rows; it must outlive this
  /// object \returns all rows of this rank's heads, [B, own heads, L, width], to be filled by `run`
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  View<T> reads(const View<const T>& own, const RowLayout& layout) {
    return add(read_, own, layout);
  }
  /// Adds a tensor that the call writes, likewise; an empty one stays empty.
  View<T> writes(const View<T>& own, const RowLayout& layout) {
    return own.empty() ? View<T>() : add(written_, own, layout);
  }

  /// Redistributes the inputs, calls f on the ranks that have heads, and redistributes the outputs.
  /// \throws on all ranks what f throws on one, before anything is written
  template <class F>
  void run(const char* op, const F& f) {
    for (Tensor<const T>& x : read_) x.slices->bring(x.own);
    detail::together(ranks_, op, [&] {
      if (!has_none()) f();
    });
    for (Tensor<T>& x : written_) x.slices->bring_back(x.own);
  }

 private:
  template <class X>
  struct Tensor {
    View<X> own;
    std::unique_ptr<ChannelAllToAll<T>> slices;
  };

  Range groups_of(Index rank) const {
    return {groups_ * rank / ranks_.size(), groups_ * (rank + 1) / ranks_.size()};
  }

  template <class X>
  View<T> add(std::vector<Tensor<X>>& to, const View<X>& own, const RowLayout& layout) {
    const Index heads = groups_ == 0 ? 0 : own.heads() / groups_;  // of a group
    const Index of_group = heads * own.width();
    std::vector<std::vector<Range>> channels;
    for (Index rank = 0; rank < ranks_.size(); ++rank) {
      const Range groups = groups_of(rank);
      channels.push_back({{groups.begin * of_group, groups.end * of_group}});
    }
    auto slices = std::make_unique<ChannelAllToAll<T>>(ranks_, layout, batch_, std::move(channels));
    const Range own_groups = groups_of(ranks_.rank());
    const View<T> whole = slices->heads(heads * (own_groups.end - own_groups.begin), own.width());
    to.push_back({own, std::move(slices)});
    return whole;
  }

  const Communicator& ranks_;
  Index batch_;
  Index groups_;
  std::vector<Tensor<const T>> read_;
  std::vector<Tensor<T>> written_;
};

/// A pass sharded by heads.
/// \tparam Tensors has a HeadAllToAll, `slices`, which provides the tensors of the call
/// \tparam Compute called as compute(tensors, executor), computes the heads of this rank
template <class Tensors, class Compute>
class PassByHeads final : public RankPass {
 public:
  /// \param op the operator's name   \param tensors with memory allocated
  PassByHeads(const char* op, std::unique_ptr<Tensors> tensors, const Compute& compute)
      : op_(op), tensors_(std::move(tensors)), compute_(compute) {}

  /// Computes the heads of this rank, and writes its rows. \returns null \throws on all ranks what
  /// one threw, before anything is written
  std::exception_ptr run(const ExecutorRef& executor) override {
    tensors_->slices.run(op_, [&] { compute_(*tensors_, executor); });
    return nullptr;
  }

 private:
  const char* op_;
  std::unique_ptr<Tensors> tensors_;
  Compute compute_;
};

/// Creates a PassByHeads.
template <class Tensors, class Compute>
std::unique_ptr<PassByHeads<Tensors, Compute>> pass_by_heads(const char* op,
                                                             std::unique_ptr<Tensors> tensors,
                                                             const Compute& compute) {
  return std::make_unique<PassByHeads<Tensors, Compute>>(op, std::move(tensors), compute);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
