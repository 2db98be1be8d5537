// SPDX-License-Identifier: MIT
/// \file
/// Included by indexed_forward.hpp, where it is documented.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/indexed.hpp"
#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/indexed/forward.hpp"
#include "fovea/attention/indexed/index_tensor.hpp"
#include "fovea/distributed/indexed/backward_pass.hpp"
#include "fovea/distributed/indexed/listed_keys.hpp"
#include "fovea/distributed/indexed_forward.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/distributed/sharding.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// A copy of the lists of a rank's rows, restricted to visible keys.
/// \param inputs of this rank's rows, checked   \throws std::bad_alloc
template <class T>
IndexTensor visible_lists(const IndexedInputs<T>& inputs, bool causal, const Sharding& rows) {
  const View<const Index>& from = inputs.indices;
  if (from.empty()) return {};
  IndexTensor made(from.shape());
  const View<Index> to = made.view();
  for (Index b = 0; b < from.batch(); ++b) {
    const Index length = inputs.key_lengths.value_or(b, rows.count());
    for (Index h = 0; h < from.heads(); ++h) {
      Index n = 0;
      for (const Range& own : rows.own()) {
        for (Index row = own.begin; row < own.end; ++row, ++n) {
          const Index end = causal ? (std::min)(length, row + 1) : length;
          for (Index c = 0; c < from.width(); ++c) {
            const Index key = from(b, h, n, c);
            if (key < 0 || key >= end) break;
            to(b, h, n, c) = key;
          }
        }
      }
    }
  }
  return made;
}

}  // namespace detail

/// One forward pass.
template <class T>
class IndexedForwardPass final : public RankPass {
 public:
  /// Allocates the memory for tensors and scratch. Memory of messages depends on the lists, and is
  /// allocated before `out` is written.
  /// \param call checked   \throws std::bad_alloc
  IndexedForwardPass(const ShardedForwardCall<IndexedAttention, T>& call,
                     const ExecutorRef& executor)
      : rows_(call.rows),
        lists_(detail::visible_lists(call.inputs, call.op.options.causal, rows_)),
        keys_(call.inputs.k, call.inputs.v, rows_),
        attention_(listed(call.inputs),
                   {lists_.view(), rows_.count(), {.scale = call.op.options.scale}}, call.out,
                   call.saved) {
    attention_.take_scratch(executor);
  }

  /// Sends, receives and attends.
  std::exception_ptr run(const ExecutorRef& executor) override {
    std::vector<Range> needed;
    std::exception_ptr error = fovea::detail::caught([&] {
      RowSet listed(rows_.count());
      for_each_listed(std::as_const(lists_).view(),
                      [&](Index /*row*/, Index key) { listed.add(key); });
      needed = listed.ranges();
    });
    // A failed rank requests nothing, and sends what others request.
    keys_.receive(needed);
    if (!error) error = fovea::detail::caught([&] { attention_.compute(executor); });
    keys_.end();
    return error;
  }

 private:
  /// The inputs of the rows, for all keys. The lists determine visibility.
  IndexedInputs<T> listed(const IndexedInputs<T>& inputs) const {
    IndexedInputs<T> made;
    made.q = inputs.q;
    made.k = keys_.k();
    made.v = keys_.v();
    made.indices = lists_.view();
    return made;
  }

  const Sharding& rows_;
  IndexTensor lists_;
  ListedKeys<T> keys_;
  IndexedForward<T> attention_;
};

namespace detail {

/// Checks this rank's arguments.
/// \param check_tensors called with this rank's inputs, checks all but the lists
/// \throws std::invalid_argument
template <class Call, class Check>
void check_indexed(const Call& call, const Check& check_tensors) {
  check_call(call, check_tensors);
  check_indices(call.op.name(), call.inputs.q, call.inputs.indices, call.rows.count());
}

}  // namespace detail

template <class T>
CommStats forward(const ShardedForwardCall<IndexedAttention, T>& call) {
  const auto check = [&] {
    detail::check_indexed(call, [&](const IndexedInputs<T>& own) {
      call.op.check_tensors(own, call.out, call.saved);
    });
  };
  return detail::run_call(
      call, call.op.options.alignment, detail::call_text(call), check,
      [&](const auto&... arguments) { call.op.forward(arguments...); },
      [&](const ExecutorRef& threads) {
        return std::make_unique<IndexedForwardPass<T>>(call, threads);
      });
}

template <class T>
CommStats backward(const ShardedBackwardCall<IndexedAttention, T>& call) {
  std::string text = detail::call_text(call);
  text.append(", keys ").append(std::to_string(call.inputs.indices.width()));
  const auto check = [&] {
    detail::check_indexed(call, [&](const IndexedInputs<T>& own) {
      call.op.check_backward_tensors(own, call.out, call.saved, call.d_out, call.grads);
    });
  };
  IndexTensor lists;
  return detail::run_call(
      call, call.op.options.alignment, text, check,
      [&](const auto&... arguments) { call.op.backward(arguments...); },
      [&](const ExecutorRef& /*threads*/) {
        lists = detail::visible_lists(call.inputs, call.op.options.causal, call.rows);
        IndexedInputs<T> visible = call.inputs;
        visible.key_lengths = {};
        visible.indices = std::as_const(lists).view();
        return std::make_unique<IndexedBackwardPass<T>>(call, visible, call.saved);
      });
}

FOVEA_RANKS_PASSES(FORWARD, IndexedAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, IndexedAttention)
FOVEA_RANKS_PASSES(BACKWARD, IndexedAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
