// SPDX-License-Identifier: MIT
/// \file
/// The forward pass of attention over lists of keys over a sequence that is spread over ranks. Rows
/// stay where they are; the keys that they list come to them.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

#include "fovea/attention/indexed.hpp"
#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/indexed/forward.hpp"
#include "fovea/attention/indexed/index_tensor.hpp"
#include "fovea/distributed/indexed/listed_keys.hpp"
#include "fovea/distributed/messages/call.hpp"
#include "fovea/distributed/messages/whole_call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

namespace detail {

/// A copy of the lists of a rank's rows that names the visible keys alone.
/// \param inputs of this rank's rows, checked   \throws std::bad_alloc
template <class T>
IndexTensor visible_lists(const IndexedInputs<T>& inputs, bool causal, const Rows& rows) {
  const View<const Index>& from = inputs.indices;
  if (from.is_none()) return {};
  IndexTensor made(from.shape());
  const View<Index> to = made.view();
  for (Index b = 0; b < from.batch(); ++b) {
    const Index length =
        inputs.key_lengths.empty() ? rows.count() : inputs.key_lengths[static_cast<std::size_t>(b)];
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

/// Checks what this rank brings to a call.
/// \param check_tensors called with the inputs of this rank, checks all but the lists
/// \throws std::invalid_argument
template <class T, class Check>
void check_indexed(const IndexedInputs<T>& inputs, const Rows& rows, const Check& check_tensors) {
  const char* const name = IndexedAttention::name();
  check_call(name, inputs, rows, check_tensors);
  check_indices(name, inputs.q, inputs.indices, rows.count());
}

}  // namespace detail

/// One forward pass.
template <class T>
class IndexedForwardPass {
 public:
  /// Takes the memory for tensors and scratch. That of messages depends on the lists, and is taken
  /// before `out` is written.
  /// \param inputs, out, saved those of this rank, checked
  /// \throws std::bad_alloc
  IndexedForwardPass(const IndexedOptions& options, const IndexedInputs<T>& inputs,
                     const View<T>& out, const IndexedSaved<T>& saved, const Rows& rows,
                     const ExecutorRef& executor)
      : rows_(rows),
        lists_(detail::visible_lists(inputs, options.causal, rows)),
        keys_(inputs.k, inputs.v, rows),
        attention_(listed(inputs), {listed(inputs).indices, rows.count(), {.scale = options.scale}},
                   out, saved) {
    attention_.take_scratch(executor);
  }
  IndexedForwardPass(const IndexedForwardPass&) = delete;
  IndexedForwardPass& operator=(const IndexedForwardPass&) = delete;

  /// The messages of this rank. \pre run was called
  Traffic traffic() const { return keys_.traffic(); }

  /// Sends, receives and attends. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  std::exception_ptr run(const ExecutorRef& executor) {
    std::vector<Range> needed;
    std::exception_ptr error = fovea::detail::caught([&] {
      RowSet listed(rows_.count());
      for_each_listed(std::as_const(lists_).view(),
                      [&](Index /*row*/, Index key) { listed.add(key); });
      needed = listed.ranges();
    });
    // Who has failed asks for nothing, and sends what others ask for.
    keys_.receive(needed);
    if (!error) error = fovea::detail::caught([&] { attention_.compute(executor); });
    keys_.end();
    return error;
  }

 private:
  /// What the rows read, of all keys. Lists of visible keys say it all.
  IndexedInputs<T> listed(const IndexedInputs<T>& inputs) const {
    IndexedInputs<T> made;
    made.q = inputs.q;
    made.k = keys_.k();
    made.v = keys_.v();
    made.indices = lists_.view();
    return made;
  }

  const Rows& rows_;
  IndexTensor lists_;
  ListedKeys<T> keys_;
  IndexedForward<T> attention_;
};

/// Computes attention over lists of keys over a sequence that is spread over ranks, on all of them
/// together; every rank calls it with its own rows. The bits are those of `op.forward` over the
/// whole sequence, for any number of ranks and any layout.
/// \param inputs q, k, v and the lists of this rank's rows, in ascending order: `indices` are
/// positions in the sequence, and key lengths count keys of the whole sequence
/// \param out [B, Hq, own rows, Dv], written
/// \param saved lse of the rank's rows
/// \param executor as in `forward` of the operator
/// \returns the messages of this rank
/// \throws as `forward` over softmax operators, and std::invalid_argument for lists that `op` does
/// not take
///
/// Cost: that of the rank's rows, and a pass over their lists; each key and value that they name
/// and that is visible is received once. Memory: the rank's keys, values and lists once more, and
/// what it receives.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const IndexedAttention& op, const InputsOf<IndexedAttention, T>& inputs, Out&& out,
                const SavedOf<IndexedAttention, T>& saved, const Rows& rows, E&& executor = {}) {
  const View<T> to(out);
  const std::string call = detail::call_text(op.name(), ".forward", inputs, rows);
  const auto check = [&] {
    detail::check_indexed(inputs, rows,
                          [&](const IndexedInputs<T>& own) { op.check_tensors(own, to, saved); });
  };
  if (detail::are_rows_moved(inputs, op.options.alignment, rows)) {
    return detail::forward_whole(op, inputs, to, saved, rows, call, check, executor);
  }
  return detail::run_call(rows, op, call, check, executor, [&](auto& threads) {
    return std::make_unique<IndexedForwardPass<T>>(op.options, inputs, to, saved, rows, threads);
  });
}

/// The same, where nothing is saved.
template <class Out, class E = Serial, class T = Scalar<Out>>
Traffic forward(const IndexedAttention& op, const InputsOf<IndexedAttention, T>& inputs, Out&& out,
                const Rows& rows, E&& executor = {}) {
  return forward(op, inputs, View<T>(out), IndexedSaved<T>{}, rows, executor);
}

}  // namespace distributed

FOVEA_NAMESPACE_END
