// SPDX-License-Identifier: MIT
/// \file
/// Incremental attention with a far field: one state for each key head and term, and a ring of
/// tokens for the near field.
#pragma once

#include <cstring>
#include <optional>
#include <vector>

#include "fovea/attention/call/step_calls.hpp"
#include "fovea/attention/linear/check.hpp"
#include "fovea/attention/linear/decoder_state.hpp"
#include "fovea/attention/linear/stream.hpp"
#include "fovea/core/on_error.hpp"

FOVEA_NAMESPACE_BEGIN

/// What `op.decoder<T>(shape)` returns for a causal operator `Op` with a far field: a growing
/// sequence of tokens, and the attention of its last positions.
/// `step` gives, bit for bit, what `op.forward` gives for the same queries and all keys so far.
/// That holds whatever pieces the tokens were appended in, and for any number of threads.
/// Memory is constant: for each key head a state of about 4 D Dv numbers for each map (2 D Dv for
/// the delta rule) and a chunk of tokens, and the ring of the near field. Sums of any length keep
/// their digits, since closed segments are added in twice the precision.
/// It must not be called from several threads at once. Errors are std::invalid_argument or
/// std::bad_alloc, and leave the decoder and the outputs as they were. If the executor of a step
/// throws something else in the middle, all tokens are forgotten.
template <class Op, class T>
class LinearDecoder : public AppendCalls<LinearDecoder<Op, T>, typename Op::template Tokens<T>>,
                      public StepCalls<LinearDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>> {
 public:
  /// The type of the arithmetic.
  using C = Compute<T>;

  /// An empty decoder.
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder;
  /// std::bad_alloc
  LinearDecoder(const Op& op, const DecoderShape& shape)
      : op_(op),
        shape_(checked(op, shape)),
        far_(op.template far<C>()),
        state_(memory_of_states()) {
    if constexpr (!Op::kHasNear) {
      weights_ = op_.template far_weights<C>(shape_.query_heads, shape_.value_width);
    }
    if constexpr (Op::kHasNear) near_.emplace(op_.near(), near_shape());
  }

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return length_; }

  /// Bytes of memory for the states, the ring and the scratch.
  [[nodiscard]] Index memory_bytes() const {
    Index bytes = state_.size_bytes() + scratch_.size_bytes();
    if constexpr (Op::kHasNear) bytes += near_->memory_bytes();
    return bytes;
  }

  /// Forgets the tokens from position `length` on: either all tokens, or some of the open chunk. To
  /// go back further, keep a `fork` or a `save`.
  /// \throws std::invalid_argument if `length` lies before the open chunk and is not 0, or beyond
  /// the tokens
  void rollback(Index length) {
    const Index least = length_ == 0 ? 0 : (length_ - 1) / chunk() * chunk() + 1;
    if (length < 0 || length > length_ || (length != 0 && length < least)) {
      refuse(Op::name(), "rollback", std::to_string(length),
             range_text(least, length_) +
                 ", or 0: earlier tokens are summed up already (keep a fork or a save)");
    }
    if constexpr (Op::kHasNear) near_->rollback(length);
    length_ = length;
  }

  /// Forgets all tokens and keeps the memory.
  void clear() noexcept {
    if constexpr (Op::kHasNear) near_->clear();
    length_ = 0;
  }

  /// Checks that `tokens` is not negative, and does nothing else: the memory is constant.
  void reserve(Index tokens) { detail::check_at_least_0(Op::name(), "reserve", tokens); }

  /// A copy of the decoder that is independent of it.
  /// \throws std::bad_alloc
  [[nodiscard]] LinearDecoder fork() const {
    LinearDecoder other(op_, shape_);
    other.take(*this);
    return other;
  }

  /// The state as bytes. `restore` accepts them in a decoder with the same operator, sizes and
  /// scalar, in a process with the same byte order and version of the library.
  [[nodiscard]] std::vector<std::byte> save() const {
    LinearStateWriter writer(header());
    writer.put(state_.template data<std::byte>(), state_.size_bytes());
    if constexpr (Op::kHasNear) writer.put(near_->held());
    return writer.take();
  }

  /// Replaces the tokens by those of a saved decoder.
  /// \throws std::invalid_argument if the bytes are not those of such a decoder; std::bad_alloc
  void restore(std::span<const std::byte> bytes) {
    LinearStateReader reader(Op::name(), bytes, header());
    Workspace state(state_.size_bytes());
    reader.get(state.template data<std::byte>(), state.size_bytes());
    const Index length = reader.length();
    if constexpr (Op::kHasNear) {
      const auto tokens = reader.template tokens<C>(shape_);
      reader.finish();
      near_->restart(tokens.view());
    } else {
      reader.finish();
    }
    state_ = std::move(state);
    length_ = length;
  }

 private:
  friend class AppendCalls<LinearDecoder<Op, T>, typename Op::template Tokens<T>>;
  friend class StepCalls<LinearDecoder<Op, T>, T, InputsOf<Op, T>, SavedOf<Op, T>>;

  /// Appends n tokens (AppendCalls). Cost: O(D Dv) flops for each token, key head and term.
  void append_tokens(const typename Op::template Tokens<T>& tokens) {
    LinearFamilyInputs<T> inputs;
    inputs.k = tokens.k;
    inputs.v = tokens.v;
    if constexpr (Op::kHasBeta) inputs.beta = tokens.beta;
    check_tokens(inputs);
    inputs.q = no_rows();
    add(inputs, View<T>(nullptr, {shape_.batch, shape_.query_heads, 0, shape_.value_width}), {},
        Serial{});
  }

  using Inputs = InputsOf<Op, T>;
  using Saved = SavedOf<Op, T>;
  using Field = decltype(std::declval<const Op&>().template far<C>());
  using Stream = CausalStream<T, Field>;

  static DecoderShape checked(const Op& op, const DecoderShape& shape) {
    op.template check_options<C>();
    const Field far = op.template far<C>();
    check_decoder_shape(Op::name(), shape, far.alignment);
    if (!far.causal) refuse(Op::name(), "causal", "false", "true: a decoder is causal");
    if (shape.rollback_tokens > 0) {
      refuse(Op::name(), "rollback_tokens", std::to_string(shape.rollback_tokens),
             "0: tokens are summed up at once (keep a fork or a save)");
    }
    return shape;
  }

  /// The sizes of the near field's decoder, which can roll back the tokens of the open chunk.
  DecoderShape near_shape() const {
    DecoderShape near = shape_;
    near.rollback_tokens = chunk();
    return near;
  }
  /// The number of tokens of the smaller chunk: a part of an open chunk can be forgotten.
  Index chunk() const {
    return far_.delta_count() == 0 ? kLinearChunk
           : far_.map_count() == 0 ? kDeltaChunk
                                   : (std::min)(kLinearChunk, kDeltaChunk);
  }

  LinearShape linear_shape() const {
    return {far_.map_count(), far_.features(shape_.width), shape_.value_width};
  }
  Index group() const { return detail::group_size(shape_.query_heads, shape_.key_heads); }

  /// Elements of the states of one key head.
  Index state_elements() const { return sums_elements() + Stream::delta_elements(linear_shape()); }
  Index sums_elements() const { return Stream::state_elements(linear_shape()); }
  Workspace memory_of_states() const {
    Workspace memory(shape_.batch * shape_.key_heads, state_elements() * Index{sizeof(C)});
    if (memory.size_bytes() > 0) {
      std::memset(memory.template data<std::byte>(), 0,
                  static_cast<std::size_t>(memory.size_bytes()));
    }
    return memory;
  }

  View<const T> no_rows() const {
    return {nullptr, {shape_.batch, shape_.query_heads, 0, shape_.width}};
  }

  void check_tokens(const LinearFamilyInputs<T>& inputs) const {
    check_decoder_tokens(Op::name(), shape_, inputs.k, inputs.v, kMostDecoderTokens - length_);
    if constexpr (Op::kHasBeta) check_beta(Op::name(), inputs);
  }

  void check_step(const Inputs& given, const LinearFamilyInputs<T>& inputs, const View<T>& out,
                  const Saved& saved) const {
    if (detail::has_new_tokens(inputs)) check_tokens(inputs);
    const Index after = length_ + detail::new_tokens(inputs);
    check_decoder_rows(Op::name(), shape_, inputs, after);
    const Index most = detail::new_tokens(inputs) + (length_ > 0 ? 1 : 0);
    if (inputs.q.rows() > most) {
      refuse_extent(Op::name(), "q", inputs.q.shape(), 2,
                    "at most " + std::to_string(most) + ": earlier tokens are summed up already");
    }
    // Of tokens that came before only the sizes matter now, so one element stands for all of them.
    static const T element{};
    [[maybe_unused]] static const C rate{};
    Inputs all = given;
    if (!detail::has_new_tokens(inputs)) {
      all.k = {&element, {shape_.batch, shape_.key_heads, 1, shape_.width}, {}};
      all.v = {&element, {shape_.batch, shape_.key_heads, 1, shape_.value_width}, {}};
      if constexpr (Op::kHasBeta) all.beta = {&rate, {shape_.batch, shape_.key_heads, 1, 1}, {}};
    }
    op_.check(all, out, saved);
  }

  /// One step (StepCalls), with at most one row more than new tokens.
  void run_step(const Inputs& given, const View<T>& out, const Saved& saved,
                const ExecutorRef& executor) {
    const auto inputs = detail::inputs_as<LinearFamilyInputs<T>>(given);
    check_step(given, inputs, out, saved);
    const Index rows = group() * inputs.q.rows() + detail::new_tokens(inputs);
    auto&& threads = for_work(executor, [&] {
      return static_cast<double>(shape_.batch * shape_.key_heads * (rows + kRowsToRead)) *
             far_.products_of_row(shape_);
    });
    add(inputs, out, saved, threads);
  }

  /// Adds the tokens of the inputs, and lets the rows read. Everything is checked already. What may
  /// throw comes first.
  void add(const LinearFamilyInputs<T>& inputs, const View<T>& out, const Saved& saved,
           const ExecutorRef& executor) {
    const Index rows = shape_.batch * shape_.query_heads == 0 ? 0 : inputs.q.rows();
    const Index tokens = detail::new_tokens(inputs);
    const Index heads = shape_.batch * shape_.key_heads;
    const Index workers = worker_count(executor, heads);
    const FarWeights<C>& weights = weights_of(inputs);
    // Every head has its own rows before they are rounded, since the near field writes all at once.
    const Index wide = Op::kHasNear ? Stream::wide_elements(linear_shape(), group(), rows) : 0;
    const Index kernel = Stream::scratch_elements(linear_shape());
    const Index needed = (heads * wide + workers * kernel) * Index{sizeof(C)};
    if (needed > scratch_.size_bytes()) scratch_ = Workspace(needed);
    rows_.resize(static_cast<std::size_t>(workers * group()));
    C* const scratch = scratch_.template data<C>();
    if constexpr (Op::kHasNear) step_near(inputs, out, saved, rows, scratch, executor);

    // The states of some heads may have the tokens when an executor throws, and others not.
    const detail::OnError forget([this] { clear(); });
    const Stream stream(inputs, group(), far_, weights, Op::kHasNear, out);
    const typename Stream::Strip strip{0, rows, 0, tokens, length_, length_ + tokens - rows};
    for_each_task(executor, heads, [&](Index task, Index worker) {
      typename Stream::Memory at;
      at.state = state_.template data<C>() + task * state_elements();
      at.delta = at.state + sums_elements();
      at.wide = scratch + task * wide;
      at.wide_rows = rows;
      at.kernel = scratch + heads * wide + worker * kernel;
      at.rows = rows_.data() + worker * group();
      stream.add(task / shape_.key_heads, task % shape_.key_heads, strip, at);
    });
    length_ += tokens;
  }

  /// Computes the near field of all heads, into `out`, or, if that has 16 bits, into `wide`.
  void step_near(const LinearFamilyInputs<T>& inputs, const View<T>& out, const Saved& saved,
                 Index rows, C* wide, const ExecutorRef& executor) {
    if constexpr (Stream::kOutIsWide) {
      step_near(detail::inputs_as<SoftmaxInputs<T>>(inputs), out, saved, rows, executor);
    } else {
      // The ring holds numbers of the type of the arithmetic, which represents all 16-bit numbers.
      Wide q(inputs.q), k(inputs.k), v(inputs.v);
      const Index row = padded_row<C>(shape_.value_width);
      const View<C> to(wide, {shape_.batch, shape_.query_heads, rows, shape_.value_width},
                       {shape_.query_heads * rows * row, rows * row, row, 1});
      SoftmaxInputs<C> widened{q.view(), k.view(), v.view()};
      step_near(widened, to, saved, rows, executor);
    }
  }
  void step_near(const SoftmaxInputs<C>& inputs, const View<C>& out, const Saved& saved, Index rows,
                 const ExecutorRef& executor) {
    if (rows == 0) {
      if (!inputs.k.is_none()) near_->append(inputs.k, inputs.v);
      return;
    }
    near_->step(inputs, out, SoftmaxSaved<C>{saved.near_lse}, executor);
    if (saved.near_out.is_none()) return;
    for (Index b = 0; b < out.batch(); ++b) {
      for (Index h = 0; h < out.heads(); ++h) {
        for (Index n = 0; n < rows; ++n) {
          for (Index c = 0; c < out.width(); ++c) saved.near_out(b, h, n, c) = out(b, h, n, c);
        }
      }
    }
  }

  /// A copy of a tensor in the type of the arithmetic.
  class Wide {
   public:
    explicit Wide(const View<const T>& x) : shape_(x.shape()), is_none_(x.is_none()) {
      if (is_none_) return;
      numbers_.reserve(static_cast<std::size_t>(x.size()));
      for (Index b = 0; b < x.batch(); ++b) {
        for (Index h = 0; h < x.heads(); ++h) {
          for (Index n = 0; n < x.rows(); ++n) {
            for (Index c = 0; c < x.width(); ++c) {
              numbers_.push_back(static_cast<C>(x(b, h, n, c)));
            }
          }
        }
      }
    }
    View<const C> view() const {
      return is_none_ ? View<const C>{} : View<const C>(numbers_.data(), shape_);
    }

   private:
    Shape shape_;
    bool is_none_;
    std::vector<C> numbers_;
  };

  /// The weights that the inputs ask for. They are made again only if the logits have changed.
  const FarWeights<C>& weights_of(const LinearFamilyInputs<T>& inputs) {
    if constexpr (Op::kHasNear) {
      if (inputs.q.rows() == 0) return weights_;
      std::vector<C> logits;
      for (const View<const C>& x : {inputs.near_logits, inputs.far_logits}) {
        logits.push_back(static_cast<C>(x.is_none() ? 0 : x.heads()));
        logits.push_back(static_cast<C>(x.is_none() ? 0 : x.width()));
        for (Index h = 0; !x.is_none() && h < x.heads(); ++h) {
          for (Index c = 0; c < x.width(); ++c) logits.push_back(x(0, h, 0, c));
        }
      }
      if (logits != logits_ || !has_weights_) {
        LinearFamilyInputs<T> sized = inputs;
        sized.v = {nullptr, {shape_.batch, shape_.key_heads, 0, shape_.value_width}};
        weights_ = op_.blend(sized).weights();
        logits_ = std::move(logits);
        has_weights_ = true;
      }
    }
    return weights_;
  }

  /// The header of a saved state.
  LinearStateHeader header() const {
    LinearStateHeader header;
    header.scalar_bytes = sizeof(C);
    header.shape = shape_;
    header.maps = far_.map_count();
    header.deltas = far_.delta_count();
    header.combine = static_cast<Index>(far_.combine);
    header.state_bytes = state_.size_bytes();
    header.length = length_;
    if constexpr (Op::kHasNear) {
      header.left = (std::min)(op_.near().options.left, kFarPosition) + 1;
    }
    return header;
  }

  /// Copies the tokens of another decoder with the same sizes.
  void take(const LinearDecoder& other) {
    if (state_.size_bytes() > 0) {
      std::memcpy(state_.template data<std::byte>(), other.state_.template data<std::byte>(),
                  static_cast<std::size_t>(state_.size_bytes()));
    }
    if constexpr (Op::kHasNear) near_ = other.near_->fork();
    length_ = other.length_;
  }

  Op op_;
  DecoderShape shape_;
  Field far_;
  Workspace state_;  // [B, Hk, state_elements]
  Index length_ = 0;
  std::optional<typename Op::template NearDecoder<T>> near_;  // only with a near field
  FarWeights<C> weights_;
  bool has_weights_ = false;
  std::vector<C> logits_;  // the logits that weights_ was made of
  std::vector<LinearRows<C, kStorage<T>>> rows_;
  Workspace scratch_;
};

FOVEA_NAMESPACE_END
