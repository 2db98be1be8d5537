// SPDX-License-Identifier: MIT
/// \file
/// One rank's forward pass of attention to gathered keys.
#pragma once

#include <algorithm>
#include <exception>
#include <utility>
#include <vector>

#include "fovea/attention/indexed/forward.hpp"
#include "fovea/attention/indexed/index_tensor.hpp"
#include "fovea/distributed/indexed/listed_keys.hpp"
#include "fovea/distributed/messages/pass.hpp"
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
  /// \param inputs, out, saved this rank's, checked
  /// \throws std::bad_alloc
  IndexedForwardPass(const IndexedOptions& options, const IndexedInputs<T>& inputs,
                     const View<T>& out, const IndexedSaved<T>& saved, const Sharding& rows,
                     const ExecutorRef& executor)
      : rows_(rows),
        lists_(detail::visible_lists(inputs, options.causal, rows)),
        keys_(inputs.k, inputs.v, rows),
        attention_(listed(inputs), {listed(inputs).indices, rows.count(), {.scale = options.scale}},
                   out, saved) {
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

}  // namespace distributed

FOVEA_NAMESPACE_END
