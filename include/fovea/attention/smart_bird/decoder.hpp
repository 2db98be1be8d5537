// SPDX-License-Identifier: MIT
/// \file
/// Incremental Smart Bird attention: the sketch of new queries chooses among the cached sketch
/// keys, and the chosen keys are attended to.
#pragma once

#include "fovea/attention/call/key_value_cache.hpp"
#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/smart_bird/options.hpp"
#include "fovea/attention/smart_bird/sketch_keys.hpp"
#include "fovea/core/members.hpp"
#include "fovea/kernels/unit.hpp"

FOVEA_NAMESPACE_BEGIN

/// n new tokens of a decoder that chooses keys by a sketch.
template <class T>
struct SketchTokens {
  ViewMember<const T> k;                  ///< keys, [B, Hk, n, D]
  ViewMember<const T> v;                  ///< values, [B, Hk, n, Dv]
  ViewMember<const Compute<T>> sketch_k;  ///< keys of the sketch, [B, 1, n, d]
};

/// Result of `SmartBirdAttention::decoder<T>(shape)`: a growing sequence of tokens, and the
/// attention of its last positions.
/// `step` gives, bit for bit, what `forward` gives for the same queries and all keys so far. That
/// holds however the tokens were split into appends, and for any number of threads.
/// A step scans all tokens, whatever the option `search`: keeping them in blocks would cost more
/// than it saves for a few rows.
/// Cost of a row: O(d) for each token, once for all heads; some draws; and K keys and values for
/// each head. Memory: keys, values and d more numbers for each token, and at most twice that.
/// Not thread-safe. Errors are std::invalid_argument or std::bad_alloc, and leave the decoder and
/// the outputs unchanged.
template <class T>
class SmartBirdDecoder
    : public AppendCalls<SmartBirdDecoder<T>, SketchTokens<T>>,
      public StepCalls<SmartBirdDecoder<T>, T, SmartBirdInputs<T>, SmartBirdSaved<T>> {
 public:
  /// The type of the arithmetic.
  using C = Compute<T>;

  /// An empty decoder.
  /// \param name the operator's name, for messages
  /// \param sketch_width d
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder;
  /// std::bad_alloc for shape.reserve
  SmartBirdDecoder(const char* name, const SmartBirdOptions& options, const DecoderShape& shape,
                   Index sketch_width);

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return cache_.length(); }

  /// Bytes of memory for keys, values and sketch keys.
  [[nodiscard]] Index memory_bytes() const { return cache_.memory_bytes() + sketch_.size_bytes(); }

  /// Drops the tokens from position `length` on.
  /// \throws std::invalid_argument if `length` is not one of 0 to length()
  void rollback(Index length);

  /// Drops all tokens and keeps the memory.
  void clear() noexcept { cache_.truncate(0); }

  /// Allocates memory for that many tokens in all.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens);

  /// An independent copy of the decoder, with memory for just its tokens.
  /// \throws std::bad_alloc
  [[nodiscard]] SmartBirdDecoder fork() const;

 private:
  friend class AppendCalls<SmartBirdDecoder<T>, SketchTokens<T>>;
  friend class StepCalls<SmartBirdDecoder<T>, T, SmartBirdInputs<T>, SmartBirdSaved<T>>;

  /// Appends n tokens (AppendCalls). Cost: O(D + Dv) for each token and key head, and O(d) for each
  /// token, on average.
  void append_tokens(const SketchTokens<T>& tokens);

  SmartBirdDecoder(const SmartBirdDecoder& other, KeyValueCache<T> cache, SketchKeys<C> sketch);

  static SmartBirdOptions checked(const char* name, const SmartBirdOptions& options,
                                  const DecoderShape& shape, Index sketch_width);

  void check_tokens(const View<const T>& k, const View<const T>& v,
                    const View<const C>& sketch_k) const;

  Index length_after(const SmartBirdInputs<T>& inputs) const;

  /// The inputs with keys of these sizes, whose values do not matter.
  SmartBirdInputs<T> sized(SmartBirdInputs<T> inputs, Index tokens) const;

  void check_step(const SmartBirdInputs<T>& inputs, const View<T>& out,
                  const SmartBirdSaved<T>& saved) const;

  /// Makes room for that many tokens in all.
  /// \throws std::bad_alloc, with no token changed
  void make_room(Index tokens);

  /// Appends tokens.
  /// \pre there is room for them
  void add(const View<const T>& k, const View<const T>& v, const View<const C>& sketch_k) noexcept;

  /// One step (StepCalls). Memory is allocated first, then the tokens are appended, and after that
  /// only an executor may throw.
  void run_step(const SmartBirdInputs<T>& inputs, const View<T>& out,
                const SmartBirdSaved<T>& saved, const ExecutorRef& executor);

  const char* name_;
  SmartBirdOptions options_;
  DecoderShape shape_;
  KeyValueCache<T> cache_;
  SketchKeys<C> sketch_;
};

FOVEA_NAMESPACE_END

#if FOVEA_HAS_PASS_BODIES
#include "fovea/attention/smart_bird/decoder.inl.hpp"
#endif
