// SPDX-License-Identifier: MIT
/// \file
/// What the forward pass and the decoder of Smart Bird attention share: the chosen keys of some
/// rows, and the attention over them.
#pragma once

#include <algorithm>
#include <limits>

#include "fovea/attention/indexed/forward.hpp"
#include "fovea/attention/smart_bird/selection.hpp"

FOVEA_NAMESPACE_BEGIN

/// What attends over lists reads.
template <class T>
IndexedInputs<T> with_indices(const SmartBirdInputs<T>& inputs, const View<const Index>& indices) {
  auto listed = detail::inputs_as<IndexedInputs<T>>(inputs);
  listed.indices = indices;
  return listed;
}

/// Room for the keys chosen for some rows, and for whether their sketch was made of numbers.
class ChosenKeys {
 public:
  /// \param shape [B, Hq, Nq, K]   \param given where the keys shall go, or none
  /// \throws std::bad_alloc
  ChosenKeys(const Shape& shape, const View<Index>& given)
      : is_number_(shape[0] * shape[2], Index{sizeof(bool)}), indices_(given) {
    if (!given.is_none()) return;
    memory_ = Workspace(rows(shape) * shape[3], Index{sizeof(Index)});
    indices_ = View<Index>(memory_.template data<Index>(), shape);
  }

  static Index size_bytes(const Shape& shape) {
    return shape[0] * shape[2] * Index{sizeof(bool)} +
           rows(shape) * shape[3] * Index{sizeof(Index)};
  }

  const View<Index>& indices() const { return indices_; }
  bool* is_number() { return is_number_.template data<bool>(); }

  /// What is written for a row whose sketch is no number is none either.
  template <class T, class E>
  void spoil(const View<T>& out, const View<Compute<T>>& lse, E&& executor) const {
    const bool* const good = is_number_.template data<bool>();
    const Index count = out.heads() == 0 ? 0 : out.batch() * out.rows();  // else none was chosen
    if (std::find(good, good + count, false) == good + count) return;
    for_each_task(executor, out.batch() * out.heads(), [&](Index task, Index) {
      const Index b = task / out.heads();
      const Index h = task % out.heads();
      for (Index n = 0; n < out.rows(); ++n) {
        if (good[b * out.rows() + n]) continue;
        for (Index c = 0; c < out.width(); ++c) {
          out(b, h, n, c) = std::numeric_limits<T>::quiet_NaN();
        }
        if (!lse.is_none()) lse(b, h, n, 0) = std::numeric_limits<Compute<T>>::quiet_NaN();
      }
    });
  }

 private:
  static Index rows(const Shape& shape) { return shape[0] * shape[1] * shape[2]; }

  Workspace is_number_;
  Workspace memory_;
  View<Index> indices_;
};

/// Rows of one call: room for their keys, and the attention over them. Everything is checked.
template <class T>
class SmartBirdRows {
 public:
  /// \param inputs q, k and v, and where sequences begin and end
  /// \throws std::bad_alloc
  SmartBirdRows(const SmartBirdOptions& options, const IndexedInputs<T>& inputs, const View<T>& out,
                const SmartBirdSaved<T>& saved)
      : chosen_(
            {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), options.places(inputs.k.rows())},
            saved.indices),
        out_(out),
        lse_(saved.lse),
        attention_(inputs, {chosen_.indices(), inputs.k.rows(), {.scale = options.scale}}, out,
                   {lse_}) {}

  /// Bytes of scratch with that many workers, that of the choice apart, if the indices are not
  /// saved.
  static Index workspace_bytes(const SmartBirdOptions& options, const AttentionShape& shape,
                               Index workers) {
    const Index places = options.places(shape.keys);
    return ChosenKeys::size_bytes({shape.batch, shape.query_heads, shape.queries, places}) +
           IndexedForward<T>::workspace_bytes(shape, places, workers);
  }

  const View<Index>& indices() const { return chosen_.indices(); }
  bool* is_number() { return chosen_.is_number(); }

  /// \throws std::bad_alloc
  template <class E>
  void take_scratch(E&& executor) {
    attention_.take_scratch(executor);
  }

  /// \pre the keys are chosen
  template <class E>
  void attend(E&& executor) {
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
