// SPDX-License-Identifier: MIT
/// \file
/// A causal far field over ranks: the ranges of rows are a chain, along which states go on.
#pragma once

#include <algorithm>
#include <exception>
#include <vector>

#include "fovea/attention/linear/stream.hpp"
#include "fovea/core/executor.hpp"
#include "fovea/distributed/state_chain.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The causal far field of one forward pass. Each range of rows adds its tokens to the states that
/// come from before, and sends them on, some key heads after the other, so that ranks work on
/// different heads at once.
template <class T, class Field>
class FarFieldChain {
 public:
  /// Takes all memory.
  /// \param inputs of this rank's rows, checked   \param weights must outlive this object
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  template <class E>
  FarFieldChain(const LinearFamilyInputs<T>& inputs, const Field& far, const FarWeights<T>& weights,
                bool has_near, const View<T>& out, const Rows& rows, E&& executor)
      : inputs_(inputs),
        rows_(rows),
        shape_(shape_of(inputs)),
        sizes_(far.linear_shape(shape_)),
        stream_(inputs, fovea::detail::group_size(shape_.query_heads, shape_.key_heads), far,
                weights, has_near, out),
        workers_((std::max)(worker_count(executor, heads()), Index{1})),
        scratch_(memory_of(executor).take(workers_, slot() * Index{sizeof(T)})),
        row_args_(static_cast<std::size_t>(workers_ * stream_.group())),
        chain_(rows.ranks(), rows.layout(), ChainWay::up, heads(),
               state_elements() * Index{sizeof(T)}, workers_) {}
  FarFieldChain(const FarFieldChain&) = delete;
  FarFieldChain& operator=(const FarFieldChain&) = delete;

  /// The messages of this rank.
  Traffic traffic() const { return chain_.traffic(); }

  /// Computes the far field of this rank's rows. All messages are exchanged even if computing
  /// throws. \returns what computing has thrown, or null
  template <class E>
  std::exception_ptr run(E&& executor) {
    return chain_.run(
        [&](const LinkOfRows& link, Index first, Index end) { add(link, first, end, executor); });
  }

 private:
  using Stream = CausalStream<T, Field>;

  /// Key heads of all sequences.
  Index heads() const { return shape_.batch * shape_.key_heads; }
  Index state_elements() const {
    return Stream::state_elements(sizes_) + Stream::delta_elements(sizes_);
  }
  /// Elements of scratch of a worker.
  Index slot() const { return Stream::scratch_elements(sizes_); }
  Index key_end(Index batch) const {
    return inputs_.key_lengths.empty() ? rows_.count()
                                       : inputs_.key_lengths[static_cast<std::size_t>(batch)];
  }

  typename Stream::Memory memory(Index head, Index worker) {
    T* const state = chain_.template state<T>(head);
    return {state,
            state + Stream::state_elements(sizes_),
            nullptr,
            0,
            scratch_.template data<T>() + worker * slot(),
            row_args_.data() + worker * stream_.group()};
  }

  /// Adds the tokens of a range to the states of some heads, whose rows read them.
  template <class E>
  void add(const LinkOfRows& link, Index first, Index end, E&& executor) {
    for_each_task(executor, end - first, [&](Index task, Index worker) {
      const Index head = first + task;
      const Index b = head / shape_.key_heads;
      const Index before = (std::min)(link.rows.begin, key_end(b));
      const Index behind = (std::min)(link.rows.end, key_end(b));
      stream_.add(b, head % shape_.key_heads,
                  {link.first, link.rows.end - link.rows.begin, link.first, behind - before, before,
                   link.rows.begin},
                  memory(head, worker));
    });
  }

  LinearFamilyInputs<T> inputs_;
  const Rows& rows_;
  AttentionShape shape_;
  LinearShape sizes_;
  Stream stream_;
  Index workers_;
  Workspace scratch_;                    // [workers, slot]
  std::vector<LinearRows<T>> row_args_;  // [workers, group]
  StateChain chain_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
