// SPDX-License-Identifier: MIT
/// \file
/// The rows of a rank in the dense Synthesizer: the hidden layer of its tokens, and its columns of
/// W2 and b2.
#pragma once

#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/distributed/synthesizer/call.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// Its queries are the hidden layer of its tokens, and its keys the columns of its positions.
template <class T>
class SynthesizerRows<DenseSynthesizerAttention, T> {
 public:
  /// Takes memory, and computes. \param in those of this rank, checked
  /// \throws std::bad_alloc, and what the executor throws
  SynthesizerRows(const DenseSynthesizerInputs<T>& in, const Rows& rows,
                  const ExecutorRef& executor)
      : hidden_(without_keys(in), in.v.batch(), rows.own_count()),
        columns_(in.w2, in.b2, in.w2.heads(), in.w2.rows(), rows.own_count()) {
    hidden_.take(worker_count(executor, hidden_.most_tasks()), SystemMemory{});
    hidden_.compute(executor);
    Index at = 0;
    for (const Range& range : rows.own()) {
      columns_.put(at, range.begin, range.end - range.begin);
      at += range.end - range.begin;
    }
    made_ = {hidden_.queries(), columns_.keys(in.v.batch()), in.v, in.key_lengths};
  }

  /// The inputs.
  const SoftmaxInputs<T>& inputs() const { return made_; }
  /// The hidden layer.
  fovea::detail::HiddenLayer<T>& hidden() { return hidden_; }

 private:
  /// The hidden layer of tokens alone, which makes no keys.
  static DenseSynthesizerInputs<T> without_keys(DenseSynthesizerInputs<T> in) {
    in.w2 = {nullptr, {0, 0, 0, 0}, {0, 0, 0, 0}};
    return in;
  }

  fovea::detail::HiddenLayer<T> hidden_;
  fovea::detail::KeyColumns<T> columns_;
  SoftmaxInputs<T> made_;
};

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
