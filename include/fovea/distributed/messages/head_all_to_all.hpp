// SPDX-License-Identifier: MIT
/// \file
/// All-to-all by heads: tensors sharded by rows are redistributed so that each rank has all rows of
/// some heads, and back. The passes of operators that are computed in this way.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fovea/core/executor_ref.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/messages/call.hpp"
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
  /// \param rows must outlive this object   \param block the rows of a row of sorting logits
  /// \param batch sequences   \param groups G
  HeadAllToAll(const Sharding& rows, Index block, Index batch, Index groups)
      : ranks_(rows.ranks()),
        rows_(rows.layout()),
        blocks_(blocks_of(rows.layout(), block)),
        batch_(batch),
        groups_(groups) {}
  HeadAllToAll(const HeadAllToAll&) = delete;
  HeadAllToAll& operator=(const HeadAllToAll&) = delete;

  /// Whether this rank has no heads.
  bool has_none() const { return groups_of(ranks_.rank()).is_empty(); }

  /// Adds what the call reads: a tensor [B, heads, own rows, width], or inputs or saved state with
  /// such tensors. All ranks add the same ones, in the same order.
  /// \returns the same with all rows of this rank's heads, [B, own heads, L, width], to be filled
  /// by `run`   \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class Tensors>
  Tensors read(Tensors of) {
    if constexpr (requires { of.sorting; }) {
      // A rank without blocks needs no logits.
      if (of.sorting.empty()) of.sorting = {nullptr, {batch_, groups_, 0, blocks_.rows()}};
    }
    for_each_tensor(
        of, [&](auto& x, const RowLayout& layout) { x = add(read_, View<const T>(x), layout); });
    return of;
  }
  /// The same for what the call writes.
  template <class Tensors>
  Tensors written(Tensors of) {
    for_each_tensor(
        of, [&](auto& x, const RowLayout& layout) { x = add(written_, View<T>(x), layout); });
    return of;
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

  /// Calls f(tensor, layout of its rows) for those that are given.
  template <class Tensors, class F>
  void for_each_tensor(Tensors& of, const F& f) const {
    detail::for_each_row_tensor(of, [&](auto& x) {
      if (!x.empty()) f(x, rows_);
    });
    if constexpr (requires { of.sorting; }) {
      if (!of.sorting.empty()) f(of.sorting, blocks_);
    }
  }

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
  const RowLayout& rows_;
  RowLayout blocks_;
  Index batch_;
  Index groups_;
  std::vector<Tensor<const T>> read_;
  std::vector<Tensor<T>> written_;
};

/// A pass sharded by heads.
/// \tparam Compute called as compute(executor), computes the heads of this rank
template <class T, class Compute>
class PassByHeads final : public RankPass {
 public:
  /// \param op the operator's name   \param tensors of the call
  PassByHeads(const char* op, std::unique_ptr<HeadAllToAll<T>> tensors, const Compute& compute)
      : op_(op), tensors_(std::move(tensors)), compute_(compute) {}

  /// Computes the heads of this rank, and writes its rows. \returns null \throws on all ranks what
  /// one threw, before anything is written
  std::exception_ptr run(const ExecutorRef& executor) override {
    tensors_->run(op_, [&] { compute_(executor); });
    return nullptr;
  }

 private:
  const char* op_;
  std::unique_ptr<HeadAllToAll<T>> tensors_;
  Compute compute_;
};

/// The forward pass of an operator whose heads are distributed. All ranks save the same tensors.
/// \param block the rows of a row of sorting logits   \param check as in `run_call`
template <class Op, class T>
CommStats forward_by_heads(const ShardedForwardCall<Op, T>& call, Index block,
                           FunctionRef<void()> check) {
  const std::string text = detail::call_text(call) + detail::given_text(call.saved);
  return detail::run_call(call, text, check, [&](const ExecutorRef& /*threads*/) {
    const View<const T>& v = call.inputs.v;
    auto tensors = std::make_unique<HeadAllToAll<T>>(call.rows, block, v.batch(), v.heads());
    const auto compute = [op = call.op, in = tensors->read(call.inputs),
                          to = tensors->written(call.out), kept = tensors->written(call.saved)](
                             const ExecutorRef& threads) { op.forward(in, to, kept, threads); };
    return std::make_unique<PassByHeads<T, decltype(compute)>>(call.op.name(), std::move(tensors),
                                                               compute);
  });
}

/// The backward pass. All ranks request the same gradients and saved the same tensors.
/// \param saved what the operator reads of it
template <class Op, class T>
CommStats backward_by_heads(const ShardedBackwardCall<Op, T>& call, const SavedOf<Op, T>& saved,
                            Index block, FunctionRef<void()> check) {
  const std::string text = detail::call_text(call) + detail::given_text(saved) +
                           detail::given_text(call.grads, ", the gradient of ");
  return detail::run_call(call, text, check, [&](const ExecutorRef& /*threads*/) {
    const View<const T>& v = call.inputs.v;
    auto tensors = std::make_unique<HeadAllToAll<T>>(call.rows, block, v.batch(), v.heads());
    const auto compute = [op = call.op, in = tensors->read(call.inputs),
                          from = tensors->read(call.out), d_from = tensors->read(call.d_out),
                          kept = tensors->read(saved),
                          wanted = tensors->written(call.grads)](const ExecutorRef& threads) {
      op.backward(in, from, kept, d_from, wanted, threads);
    };
    return std::make_unique<PassByHeads<T, decltype(compute)>>(call.op.name(), std::move(tensors),
                                                               compute);
  });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
