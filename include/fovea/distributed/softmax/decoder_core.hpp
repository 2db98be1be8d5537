// SPDX-License-Identifier: MIT
/// \file
/// The operator-independent core of distributed softmax decoders.
#pragma once

#include <algorithm>
#include <exception>
#include <memory>
#include <string>

#include "fovea/attention/call/inputs.hpp"
#include "fovea/attention/call/key_value_cache.hpp"
#include "fovea/attention/call/saved.hpp"
#include "fovea/attention/call/shapes.hpp"
#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/softmax/decode_plan.hpp"
#include "fovea/attention/softmax/retained_keys.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/distributed/softmax/decode_shares.hpp"
#include "fovea/distributed/softmax/key_blocks.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// The tensors of a step.
template <class T>
struct SoftmaxStep {
  SoftmaxInputs<T> inputs;  ///< q, new k and v, and the rest
  View<T> out;              ///< written
  SoftmaxSaved<T> saved;    ///< lse, written if given

  /// The step for some query rows, without new tokens.
  SoftmaxStep rows(Index first, Index count) const {
    SoftmaxStep made = *this;
    made.inputs.q = cut(inputs.q, first, count);
    made.inputs.k = made.inputs.v = {};
    made.inputs.bias = cut(inputs.bias, first, count);
    made.inputs.mask = cut(inputs.mask, first, count);
    made.out = cut(out, first, count);
    made.saved.lse = cut(saved.lse, first, count);
    return made;
  }

  /// The sizes other than the decoder's, as text.
  std::string text() const {
    std::string text(", new tokens ");
    text.append(std::to_string(fovea::detail::new_tokens(inputs)));
    if (!inputs.bias.empty()) text.append(", bias ").append(to_string(inputs.bias.shape()));
    if (!inputs.mask.empty()) text.append(", mask ").append(to_string(inputs.mask.shape()));
    if (!inputs.alibi_slopes.empty()) text.append(", ALiBi");
    if (!inputs.sink.empty()) text.append(", sinks");
    return text;
  }

 private:
  /// Some rows of a tensor; the whole tensor if it has a single broadcast row.
  template <class X>
  static View<X> cut(const View<X>& x, Index first, Index count) {
    if (x.rows() <= 1) return x;
    Shape shape = x.shape();
    shape[2] = count;
    X* const data = x.size() == 0 ? x.data() : x.data() + first * x.strides()[2];
    return View<X>(data, shape, x.strides());
  }
};

namespace detail {

/// The sizes of a decoder as text, equal on all ranks.
inline std::string sizes_text(const DecoderShape& shape) {
  const auto sizes = [&](Index heads, Index width) {
    std::string text = std::to_string(shape.batch);
    text.append("x").append(std::to_string(heads)).append("x");
    return text.append(std::to_string(width));
  };
  std::string text("q ");
  text.append(sizes(shape.query_heads, shape.width)).append(", k ");
  text.append(sizes(shape.key_heads, shape.width)).append(", v ");
  text.append(sizes(shape.key_heads, shape.value_width));
  return text.append(" (batch, heads, width)");
}

}  // namespace detail

template <class T>
class ShardedSplitKv;

/// A decoder for tensors of T; see SoftmaxDecoder. All calls pass the same operator.
template <class T>
class ShardedDecoderCore {
 public:
  /// The modifier of the logits.
  using Modifier = ScoreModifierArgs<Compute<T>>;
  static constexpr Index kMostStep = 16;  ///< as SoftmaxDecoder::kMostStep

  /// An empty decoder. \param options the operator's, as text
  ShardedDecoderCore(const SoftmaxOperatorRef& op, const std::string& options,
                     const DecoderShape& shape, const Communicator& ranks);

  /// The number of tokens so far.
  Index length() const { return length_; }
  /// The number of positions of a block.
  Index block() const { return fixed_.blocks.size(); }
  /// The layout of that many tokens.
  RowLayout layout(Index tokens) const;
  /// Bytes of memory of this rank for keys, values and scratch.
  Index memory_bytes() const;
  /// Appends tokens; each rank stores its own.
  void append(const KeyValueTokens<T>& tokens);
  /// Appends `count` tokens; each rank passes its own.
  void append_own(const KeyValueTokens<T>& tokens, Index count);
  /// Removes the tokens from position `length` on.
  void rollback(Index length);
  /// Removes all tokens and keeps the memory.
  void clear() noexcept { truncate(0); }
  /// Allocates this rank's memory for that many tokens in total.
  void reserve(Index tokens);
  /// One step. \param call of the operator
  CommStats step(const SoftmaxOperatorRef& op, const Modifier& modifier, const SoftmaxStep<T>& step,
                 const detail::CollectiveCall& call);

 private:
  /// State derived from the operator and the sizes.
  struct Fixed {
    RetainedKeys scope;
    HeadGroups groups;
    KeyBlocks blocks;
    Index row_bytes;  // of a key and its value
  };
  struct Pass;

  Fixed agreed_parts(const SoftmaxOperatorRef& op, const std::string& options) const;
  static Index common_step(const RetainedKeys& scope);
  Index own_count(Index length) const { return fixed_.blocks.count(ranks_->rank(), length); }
  /// The number of rows computed at a time.
  Index rows_at_once() const;
  void truncate(Index length) noexcept;
  void check_tokens(const KeyValueTokens<T>& tokens, Index most) const;
  /// Reserves memory for this rank's part of that many tokens in total.
  void make_room(Index tokens) { cache_.make_room((std::max)(Index{1}, own_count(tokens))); }
  /// Appends tokens. \param check checks this rank's arguments
  /// \param put_own appends this rank's tokens, for which memory is reserved
  void append(const char* call, Index count, FunctionRef<void()> check,
              FunctionRef<void()> put_own);
  /// Appends this rank's part of the next tokens. \pre memory is reserved
  void put(const View<const T>& k, const View<const T>& v) noexcept;
  void put_new(const SoftmaxInputs<T>& inputs) noexcept;
  /// The last rows of a sequence that ends with the new tokens.
  SequenceShape rows_after(const SoftmaxInputs<T>& inputs) const;
  /// The rows computed at a time, from row `first` on.
  SequenceShape chunk(const SequenceShape& rows, Index first) const;
  AnyPattern pattern(const SoftmaxOperatorRef& op, Index h, const SequenceShape& rows) const;
  std::unique_ptr<Pass> prepare(const SoftmaxOperatorRef& op, const Modifier& modifier,
                                const SoftmaxStep<T>& step, const ExecutorRef& executor);
  /// Computes some rows of a step, whose tokens were appended. \returns the exception that the
  /// executor threw
  std::exception_ptr run(ShardedSplitKv<T>& chunk, const SoftmaxOperatorRef& op,
                         const Modifier& modifier, SoftmaxStep<T> step, const SequenceShape& rows,
                         const ExecutorRef& executor);
  /// Describes the parts of a call that must be equal on all ranks.
  std::string call_text(const std::string& call, Index number) const;

  const char* name_;
  DecoderShape shape_;
  Index length_ = 0;
  const Communicator* ranks_;
  Fixed fixed_;
  detail::MpiType row_;   // a key and its value
  detail::MpiType unit_;  // of running softmaxes
  KeyValueCache<T> cache_;
  DecodePlan plan_;      // the last step's, kept for its memory
  DecodeShares shares_;  // likewise
  Workspace scratch_;    // likewise
};

}  // namespace distributed

FOVEA_NAMESPACE_END

#if !defined(FOVEA_COMPILED_MPI)
#include "fovea/distributed/softmax/decoder_core.inl.hpp"
#endif
