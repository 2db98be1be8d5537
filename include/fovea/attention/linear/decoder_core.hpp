// SPDX-License-Identifier: MIT
/// \file
/// The operator-independent part of decoders with a far field: one state for each key head and
/// term, and a ring of tokens for the near field.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "fovea/attention/linear/terms.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/workspace.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

template <class T, class Field>
class CausalStream;
struct LinearStateHeader;

/// A decoder for an operator. LinearDecoder documents the calls.
/// \tparam Passes LinearPasses or FmmPasses
template <class Passes>
class LinearDecoderCore {
 public:
  /// The scalar of the tensors.
  using T = typename Passes::Scalar;
  /// The type of the arithmetic.
  using C = Compute<T>;
  /// The operator's settings.
  using Settings = typename Passes::Settings;
  /// A step's saved tensors.
  using Saved = typename Passes::Saved;

  /// An empty decoder.
  LinearDecoderCore(const Settings& op, const DecoderShape& shape);

  /// The number of tokens so far.
  Index length() const { return length_; }
  /// Bytes of memory for the states, the ring and the scratch.
  Index memory_bytes() const;
  /// Drops the tokens from position `length` on.
  void rollback(Index length);
  /// Drops all tokens and keeps the memory.
  void clear() noexcept;
  /// Checks that `tokens` is not negative.
  void reserve(Index tokens) const;
  /// Appends the inputs' tokens k, v and beta; other members are not read.
  void append(LinearFamilyInputs<T> inputs);
  /// One step, with at most one row more than new tokens.
  void step(const LinearFamilyInputs<T>& inputs, const View<T>& out, const Saved& saved,
            const ExecutorRef& executor);
  /// An independent copy.
  LinearDecoderCore fork() const;
  /// The state as bytes.
  std::vector<std::byte> save() const;
  /// Replaces the tokens by those of a saved decoder.
  void restore(std::span<const std::byte> bytes);

 private:
  using Far = typename Settings::Far;
  using Stream = CausalStream<T, Far>;

  static const DecoderShape& checked(const Settings& op, const DecoderShape& shape);
  /// The sizes of the near field's decoder, which can roll back the tokens of the open chunk.
  DecoderShape near_shape() const;
  /// The smaller chunk size in tokens: a part of an open chunk can be rolled back.
  Index chunk() const;
  LinearShape linear_shape() const;
  /// The query heads of a key head.
  Index group() const;
  /// Elements of the states of one key head.
  Index state_elements() const;
  Index sums_elements() const;
  Workspace memory_of_states() const;
  /// The header of a saved state.
  LinearStateHeader header() const;

  void check_tokens(const LinearFamilyInputs<T>& inputs) const;
  void check_step(const LinearFamilyInputs<T>& inputs, const View<T>& out,
                  const Saved& saved) const;
  /// Adds the tokens of the inputs, and computes the rows. Everything is checked already. What may
  /// throw comes first.
  void add(const LinearFamilyInputs<T>& inputs, const View<T>& out, const Saved& saved,
           const ExecutorRef& executor);
  /// The weights for the inputs, recomputed only if the logits have changed.
  const FarWeights<C>& weights_of(const LinearFamilyInputs<T>& inputs);

  Settings op_;
  DecoderShape shape_;
  Workspace state_;  // [B, Hk, state_elements]
  Index length_ = 0;
  std::optional<typename Passes::NearDecoder> near_;  // only with a near field
  FarWeights<C> weights_;
  bool has_weights_ = false;
  std::vector<C> logits_;  // the logits that weights_ was made from
  std::vector<LinearRows<C, kStorage<T>>> rows_;
  Workspace scratch_;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/linear/decoder_core.inl.hpp"
#endif
