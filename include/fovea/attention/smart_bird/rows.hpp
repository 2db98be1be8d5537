// SPDX-License-Identifier: MIT
/// \file
/// The common part of the forward pass and the decoder of Smart Bird attention: memory for the
/// chosen keys of some rows, and the attention over them.
#pragma once

#include <algorithm>
#include <limits>

#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/indexed/forward.hpp"
#include "fovea/attention/smart_bird/selection.hpp"

FOVEA_NAMESPACE_BEGIN

/// The inputs of attention over lists of keys, with these lists.
template <class T>
IndexedInputs<T> with_indices(const SmartBirdInputs<T>& inputs, const View<const Index>& indices) {
  auto listed = detail::inputs_as<IndexedInputs<T>>(inputs);
  listed.indices = indices;
  return listed;
}

/// Memory for some rows' chosen keys, and for whether the rows' sketch scores are free of NaN.
class ChosenKeys {
 public:
  /// \param shape [B, Hq, Nq, K]
  /// \param given where the keys are written; if empty, memory is allocated for them
  /// \param memory the call's (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  ChosenKeys(const Shape& shape, const View<Index>& given, Memory&& memory)
      : is_number_(memory.take(shape[0] * shape[2], Index{sizeof(bool)})), indices_(given) {
    if (!given.empty()) return;
    memory_ = memory.take(detail::element_count(shape), Index{sizeof(Index)});
    indices_ = View<Index>(memory_.template data<Index>(), shape);
  }

  /// Where the keys are written, [B, Hq, Nq, K].
  const View<Index>& indices() const { return indices_; }
  /// Whether each row's sketch scores are free of NaN, [B, Nq], to be written.
  bool* is_number() { return is_number_.template data<bool>(); }

  /// Writes NaN to out and lse for every row whose sketch scores have NaN.
  template <class T>
  void spoil(const View<T>& out, const View<Compute<T>>& lse, const ExecutorRef& executor) const {
    const bool* const good = is_number_.template data<bool>();
    const Index count =
        out.heads() == 0 ? 0 : out.batch() * out.rows();  // without heads no key was chosen
    if (std::find(good, good + count, false) == good + count) return;
    for_each_task(executor, out.batch() * out.heads(), [&](Index task, Index) {
      const Index b = task / out.heads();
      const Index h = task % out.heads();
      for (Index n = 0; n < out.rows(); ++n) {
        if (good[b * out.rows() + n]) continue;
        for (Index c = 0; c < out.width(); ++c) {
          out(b, h, n, c) = std::numeric_limits<T>::quiet_NaN();
        }
        if (!lse.empty()) lse(b, h, n, 0) = std::numeric_limits<Compute<T>>::quiet_NaN();
      }
    });
  }

 private:
  Workspace is_number_;
  Workspace memory_;
  View<Index> indices_;
};

/// The rows of one call: memory for their keys, and the attention over them. Everything is checked.
template <class T>
class SmartBirdRows {
 public:
  /// \param inputs q, k and v, and the sequences' offsets
  /// \param out [B, Hq, Nq, Dv], written
  /// \param saved lse and the keys are written if a tensor is given
  /// \param memory the call's (memory_of)
  /// \throws std::bad_alloc
  template <class Memory>
  SmartBirdRows(const SmartBirdOptions& options, const IndexedInputs<T>& inputs, const View<T>& out,
                const SmartBirdSaved<T>& saved, Memory&& memory)
      : chosen_(
            {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), options.places(inputs.k.rows())},
            saved.indices, memory),
        out_(out),
        lse_(saved.lse),
        attention_(inputs, {chosen_.indices(), inputs.k.rows(), {.scale = options.scale}}, out,
                   {lse_}) {}

  /// The chosen keys, to be written.
  const View<Index>& indices() const { return chosen_.indices(); }
  /// Whether each row's sketch scores are free of NaN, to be written.
  bool* is_number() { return chosen_.is_number(); }

  /// Allocates the scratch memory for `compute` with the same executor.
  /// \throws std::bad_alloc
  void take_scratch(const ExecutorRef& executor) { attention_.take_scratch(executor); }

  /// Attends to the chosen keys.
  /// \pre the keys are chosen, and take_scratch was called
  void compute(const ExecutorRef& executor) {
    attention_.compute(executor);
    chosen_.spoil(out_, lse_, executor);
  }

 private:
  ChosenKeys chosen_;
  View<T> out_;
  View<Compute<T>> lse_;
  IndexedForward<T> attention_;
};

FOVEA_NAMESPACE_END
