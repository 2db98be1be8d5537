// SPDX-License-Identifier: MIT
/// \file
/// Smart Bird attention (Wu et al. 2021): a sketch of one head and a few dimensions chooses the
/// keys that each row and head attends to.
#pragma once

#include "fovea/attention/call/backward_calls.hpp"
#include "fovea/attention/call/forward_calls.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/indexed/index_tensor.hpp"
#include "fovea/attention/smart_bird/check.hpp"
#include "fovea/attention/smart_bird/decoder.hpp"
#include "fovea/attention/smart_bird/rows.hpp"
#include "fovea/attention/smart_bird/selection.hpp"

FOVEA_NAMESPACE_BEGIN

/// out[b, h, i] = sum_j softmax_j(s_ij) v_j over the K keys that row i of head h keeps. The sketch
/// gives alpha_ij = softmax_j(<sq_i, sk_j> / sqrt(d)) over the visible keys, the policy a sampling
/// weight p_ij (eq. 2: 1 / log(alpha_ij)^2), and the keys with the K largest s_ij = u_ij p_ij are
/// kept, u_ij uniform in (0, 1), another for every batch, head, row and key (eq. 3). Of equal
/// scores the smaller key is kept; where alpha is 1 the key always is; where no more than K keys
/// are visible all are. Visible: within the key length or the packed sequence, and if causal up to
/// the row's position. See MATHS.md, section 5.
///
/// Inputs beside q, k and v: sketch_q [B, 1, Nq, d], sketch_k [B, 1, Nk, d] in the type of the
/// arithmetic; draws [B, Hq, Nq, Nk] instead of the seed's, to compare with other programs.
///
/// A row whose visible sketch holds a NaN, or an infinity that makes one of alpha, becomes NaN (its
/// indices are its first keys); under the policy `random` the sketch is not read. The bits are the
/// same for any number of threads, and the keys also at every instruction-set level.
///
/// Cost: O(d) per pair of row and key once for all heads, some draws for each head, and
/// 2 K (D + Dv) flops per row and head. Memory: 8 min(K, Nk) bytes per row and head for the indices
/// unless they are saved, d numbers per key, and for each worker 48 bytes per key (double: 88).
class SmartBirdAttention : public ForwardCalls<SmartBirdAttention>,
                           public BackwardCalls<SmartBirdAttention> {
 public:
  template <class T>
  using Inputs = SmartBirdInputs<T>;
  template <class T>
  using Saved = SmartBirdSaved<T>;
  template <class T>
  using Grads = SmartBirdGrads<T>;
  using Shape = SmartBirdShape;
  using DecoderShape = SmartBirdDecoderShape;

  /// What a decoder takes of new tokens.
  template <class T>
  using Tokens = SketchTokens<T>;

  SmartBirdOptions options;

  SmartBirdAttention() = default;
  explicit SmartBirdAttention(const SmartBirdOptions& chosen) : options(chosen) {}

  static constexpr const char* name() { return "SmartBirdAttention"; }

  /// Chooses keys alone: what `forward` attends to. \tparam T the type of the arithmetic
  /// \param indices [B, Hq, Nq, K] with K = keys_per_row: ascending, -1 behind the last key
  /// \throws std::invalid_argument, before anything is written; std::bad_alloc
  template <class T = float, class E = Serial>
  void select(const SketchInputs<T>& inputs, const View<Index>& indices, E&& executor = {}) const {
    check_smart_bird_options<T>(name(), options);
    check_sketch(name(), inputs, indices.heads());
    check_output(
        name(), "indices", indices, inputs,
        {inputs.sketch_q.batch(), indices.heads(), inputs.sketch_q.rows(), options.keys_per_row});
    select_keys(options, inputs, indices, nullptr, as_executor(executor));
  }

  /// The same into a new tensor. \param heads of the attention
  template <class T = float, class E = Serial>
  [[nodiscard]] IndexTensor select(const SketchInputs<T>& inputs, Index heads,
                                   E&& executor = {}) const {
    check_smart_bird_options<T>(name(), options);
    check_sketch(name(), inputs, heads);
    IndexTensor indices(
        {inputs.sketch_q.batch(), heads, inputs.sketch_q.rows(), options.keys_per_row});
    select_keys(options, inputs, indices.view(), nullptr, as_executor(executor));
    return indices;
  }

  /// \throws std::invalid_argument naming operator, tensor, dimension, expected and got. O(1) (in
  /// the batch and the number of sequences for what is given of each).
  template <class T>
  void check(const InputsOf<SmartBirdAttention, T>& inputs, const View<T>& out,
             const SavedOf<SmartBirdAttention, T>& saved = {}) const {
    check_smart_bird<T>(name(), options, inputs, out, saved);
  }

  /// \throws std::invalid_argument as `check`, for everything that `backward` takes.
  template <class T>
  void check_backward(const InputsOf<SmartBirdAttention, T>& inputs, const View<const T>& out,
                      const SavedOf<SmartBirdAttention, T>& saved, const View<const T>& d_out,
                      const GradsOf<SmartBirdAttention, T>& grads) const {
    check_smart_bird_options<Compute<T>>(name(), options);
    check_smart_bird_inputs(name(), inputs);
    if (!saved.indices.is_none()) check_indices(name(), with_indices(inputs, saved.indices));
    check_rows(name(), "out", inputs, out);
    check_rows(name(), "d_out", inputs, d_out);
    check_lse(name(), inputs, saved);
    check_grads(name(), inputs, out, saved, d_out, grads);
  }

  /// Bytes of scratch of `forward` with that many workers, if the indices are not saved.
  template <class T>
  [[nodiscard]] Index workspace_bytes(const SmartBirdShape& shape, Index workers = 1) const {
    using C = Compute<T>;
    return SmartBirdRows<T>::workspace_bytes(options, shape, workers) +
           SketchKeys<C>::size_bytes(shape.batch, shape.sketch_width, shape.keys) +
           SketchSelection<C>::workspace_bytes(shape.keys, shape.sketch_width, workers);
  }

  /// Bytes of scratch of `backward` with that many workers, if the indices are saved.
  template <class T>
  [[nodiscard]] Index backward_workspace_bytes(const SmartBirdShape& shape,
                                               Index workers = 1) const {
    const Index places = options.places(shape.keys);
    return IndexedBackward<T>::workspace_bytes(shape, places, shape.queries * places, workers);
  }

  /// (query, key) pairs of one query head that are attended to, without key lengths.
  [[nodiscard]] Index visible_pairs(const SmartBirdShape& shape, Index /*head*/ = 0) const {
    const auto sequence = SequenceShape::of(shape.queries, shape.keys, options.alignment);
    Index pairs = 0;
    for (Index row = 0; row < shape.queries; ++row) {
      const Index seen = options.causal
                             ? std::clamp(sequence.first_position + row + 1, Index{0}, shape.keys)
                             : shape.keys;
      pairs = add_pairs(pairs, 1, options.places(seen));
    }
    return pairs;
  }

  /// The same attention for tokens that come one after the other.
  /// \throws as the constructor of SmartBirdDecoder
  template <class T>
  [[nodiscard]] SmartBirdDecoder<T> decoder(const DecoderShape& shape) const {
    return {name(), options, shape, shape.sketch_width};
  }

 private:
  friend class ForwardCalls<SmartBirdAttention>;
  friend class BackwardCalls<SmartBirdAttention>;

  /// Gradients of q, k and v from d_out, the gradient of the loss with respect to out, with the
  /// chosen keys fixed: the choice is not differentiated, and the sketch is trained by a head of
  /// its own (section 3.1). Without saved indices the keys are chosen again, the same ones.
  template <class T, class E>
  void run_backward(const InputsOf<SmartBirdAttention, T>& inputs, const View<const T>& out,
                    const SavedOf<SmartBirdAttention, T>& saved, const View<const T>& d_out,
                    const GradsOf<SmartBirdAttention, T>& grads, E&& executor) const {
    IndexTensor again;
    View<const Index> indices = saved.indices;
    if (saved.indices.is_none()) {
      again = IndexTensor(
          {inputs.q.batch(), inputs.q.heads(), inputs.q.rows(), options.places(inputs.k.rows())});
      select_keys(options, detail::sketch_of(inputs), again.view(), nullptr, executor);
      indices = again.view();
    }
    const TensorLists lists(indices, inputs.k.rows(), {.scale = options.scale});
    IndexedBackward<T>(with_indices(inputs, indices), lists, out, {saved.lse}, d_out, grads)
        .run(executor);
  }

  template <class T, class E>
  void run(const Inputs<T>& inputs, const View<T>& out, const Saved<T>& saved, E&& executor) const {
    SmartBirdRows<T> rows(options, with_indices(inputs, {}), out, saved);
    rows.take_scratch(executor);
    select_keys(options, detail::sketch_of(inputs), rows.indices(), rows.is_number(), executor);
    rows.attend(executor);
  }
};

FOVEA_NAMESPACE_END
