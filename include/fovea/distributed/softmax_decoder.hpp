// SPDX-License-Identifier: MIT
/// \file
/// Incremental softmax attention whose cache of keys and values is spread over ranks.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/call/key_value_cache.hpp"
#include "fovea/attention/softmax/retained_keys.hpp"
#include "fovea/attention/softmax/step_check.hpp"
#include "fovea/core/on_error.hpp"
#include "fovea/distributed/messages/exchange_plan.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/distributed/softmax/spread_split_kv.hpp"
#include "fovea/distributed/softmax/step.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// A growing sequence of tokens whose keys and values are spread over ranks, and the attention of
/// its last positions. Every rank makes the same calls with the same queries and tokens, keeps a
/// part of the tokens, and gets all of the outputs. `step` gives the bits of `op.decoder`, and so
/// those of `op.forward`, for any number of ranks and threads.
///
/// Positions are dealt to the ranks in turn, in blocks of `block()`: kKeySegment times a multiple
/// of the steps of the operator's runs, as far as these are at most kMostStep. So the keys of a
/// segment lie on one rank, which computes its running softmax. These go to all ranks, and every
/// rank merges them in the order of the keys. Keys travel only if a row sees them in other steps,
/// or in the band form of a window of at most kBandKeys: they go to all ranks, and every rank
/// computes with them.
///
/// It is for operators with a head that looks back without an end (full, causal, strided, BigBird,
/// modified, lists of patterns). What a bounded window sees is small, and linear, FMM and
/// delta-rule attention have a state of constant size: their `op.decoder` does without ranks.
///
/// Cost of a step: on each rank the segments that it keeps, 2 (D + Dv) flops for each pair; three
/// agreements; and, sent to each other rank, Dv + 3 numbers (each of the four parts rounded up to
/// whole registers) for each row, head and segment. Rows are always computed as few rows are, up to
/// kMostRows of the heads that share keys at a time, with an exchange for each such group of rows:
/// a long prompt is cheaper by `distributed::forward` over the rows of `layout` and then
/// `append_own`. Memory: that of at most twice the rank's tokens, which are its share and at most a
/// block; and for a step twice the running softmaxes of all segments, and the keys that travel.
///
/// It must not be called from several threads at once. Where one rank throws, all throw the same
/// message, with its number before it. Ranks whose calls differ in sizes are refused; whether they
/// pass the same numbers is not checked. Errors are std::invalid_argument or std::bad_alloc, and
/// leave the decoder and the outputs as they were. What a user's executor throws while it computes
/// leaves the decoder so, and the outputs unspecified. std::runtime_error is thrown if MPI fails.
template <class Op, class T>
requires PatternAttention<Op, T>
class SoftmaxDecoder {
 public:
  /// Keys that are seen in steps of at most this have their segments on one rank each, if the
  /// least common multiple of these steps is not more, too.
  static constexpr Index kMostStep = 16;

  /// An empty decoder, which all ranks make together.
  /// \param ranks must outlive this object
  /// \throws std::invalid_argument if the options or the sizes do not allow a decoder, if no head
  /// looks back without an end, or if sizes differ between ranks; std::bad_alloc for shape.reserve
  SoftmaxDecoder(const Op& op, const DecoderShape& shape, const Communicator& ranks)
      : op_(op),
        shape_(shape),
        ranks_(&ranks),
        fixed_(agreed_parts()),
        row_(detail::MpiType::row(ranks, fixed_.row_bytes)),
        unit_(detail::MpiType::row(ranks, SpreadSplitKv<T>::kUnit * Index{sizeof(Compute<T>)})),
        cache_({shape.batch, shape.key_heads, shape.width, shape.value_width}) {
    if (shape.reserve > 0) reserve(shape.reserve);
  }

  /// The number of tokens so far.
  [[nodiscard]] Index length() const { return length_; }
  /// The number of positions of a block.
  [[nodiscard]] Index block() const { return fixed_.blocks.size(); }
  /// Which rank keeps which of that many tokens.
  [[nodiscard]] RowLayout layout(Index tokens) const {
    return RowLayout::block_cyclic(tokens, ranks_->size(), block());
  }
  /// Bytes of memory of this rank for keys, values and scratch.
  [[nodiscard]] Index memory_bytes() const {
    return cache_.memory_bytes() + scratch_.size_bytes() + plan_.memory_bytes() +
           shares_.memory_bytes();
  }

  /// Appends n tokens, of which each rank keeps its own. Cost: two agreements, and O(D + Dv) for
  /// each token that the rank keeps and key head, on average.
  /// \param tokens k [B, Hk, n, D] and v [B, Hk, n, Dv], the same on all ranks
  /// \throws std::invalid_argument if their shapes are not those of the decoder; std::bad_alloc
  void append(const KeyValueTokens<T>& tokens) {
    append(
        ".append", tokens.k.rows(), [&] { check_tokens(tokens, kMostDecoderTokens - length_); },
        [&] { put(tokens.k, tokens.v); });
  }
  /// Appends n tokens: k [B, Hk, n, D] and v [B, Hk, n, Dv].
  void append(const View<const T>& k, const View<const T>& v) { append({k, v}); }

  /// Appends `count` tokens, of which each rank brings those that it keeps. \param tokens the
  /// rank's, in ascending order: those at positions length() + n that `layout(length() + count)`
  /// gives it   \throws as append
  void append_own(const KeyValueTokens<T>& tokens, Index count) {
    const auto check = [&] {
      fovea::detail::check_at_least_0(Op::name(), "count", count);
      check_tokens(tokens, kMostDecoderTokens);
      if (count > kMostDecoderTokens - length_) {
        refuse(Op::name(), "count", std::to_string(count),
               range_text<Index>(0, kMostDecoderTokens - length_));
      }
      const Index own = own_count(length_ + count) - own_count(length_);
      if (tokens.k.rows() == own) return;
      refuse_extent(Op::name(), "k", tokens.k.shape(), 2,
                    std::to_string(own) + ", the tokens that this rank keeps");
    };
    append(".append_own", count, check,
           [&] { cache_.append(tokens.k, tokens.v, 0, tokens.k.rows()); });
  }

  /// Forgets the tokens from position `length` on. Cost: an agreement.
  /// \throws std::invalid_argument if `length` is not one of 0 to length()
  void rollback(Index length) {
    detail::together(*ranks_, call_text(".rollback to ", length), [&] {
      if (length >= 0 && length <= length_) return;
      refuse(Op::name(), "rollback", std::to_string(length),
             range_text<Index>(0, length_) + ", the tokens in the decoder");
    });
    truncate(length);
  }

  /// Forgets all tokens and keeps the memory. All ranks call it, but do not meet.
  void clear() noexcept { truncate(0); }

  /// Takes the memory of this rank's part of that many tokens in all. Cost: an agreement.
  /// \throws std::invalid_argument if `tokens` is negative; std::bad_alloc
  void reserve(Index tokens) {
    detail::together(*ranks_, call_text(".reserve of ", tokens), [&] {
      fovea::detail::check_at_least_0(Op::name(), "reserve", tokens);
      cache_.reserve(own_count((std::min)(tokens, kMostDecoderTokens)));
    });
  }

  /// Computes attention for the last n positions. If the inputs have k and v, these are appended
  /// first.
  /// \param inputs q [B, Hq, n, D], and the rest as in `forward` of the operator, where Nk is the
  /// length after appending: all the same on all ranks
  /// \param out [B, Hq, n, Dv], of which every element is written on all ranks
  /// \param saved lse [B, Hq, n, 1], written if it has a tensor
  /// \param executor runs the segments of this rank, as in `forward` of the operator
  /// \returns the messages of this rank
  template <class Out, class E = Serial>
  Traffic step(const SoftmaxInputs<T>& inputs, Out&& out, const SoftmaxSaved<T>& saved,
               E&& executor = {}) {
    const SoftmaxStep<T> step{inputs, View<T>(out), saved};
    const fovea::detail::OnError forget([this, length = length_] { truncate(length); });
    const Traffic traffic = detail::run_call(
        *ranks_, op_, call_text(".step of ", inputs.q.rows()).append(step.text()),
        [&] { check_softmax_step(op_, shape_, length_, inputs, step.out, saved); }, executor,
        [&](auto& threads) { return prepare(step, threads); });
    if (inputs.q.rows() > rows_at_once()) {  // whose lists are large
      plan_ = DecodePlan();
      shares_ = DecodeShares();
    }
    return traffic;
  }

  /// The same on the calling thread, where nothing is saved.
  template <class Out>
  Traffic step(const SoftmaxInputs<T>& inputs, Out&& out) {
    return step(inputs, View<T>(out), SoftmaxSaved<T>{});
  }
  /// The same, where nothing is saved.
  template <class Out, class E>
  requires(!std::convertible_to<E, SoftmaxSaved<T>>) Traffic
      step(const SoftmaxInputs<T>& inputs, Out&& out, E&& executor) {
    return step(inputs, View<T>(out), SoftmaxSaved<T>{}, executor);
  }

 private:
  /// What follows from the operator and the sizes.
  struct Fixed {
    RetainedKeys scope;
    HeadGroups groups;
    KeyBlocks blocks;
    Index row_bytes;  // of a key and its value
  };

  /// A step that is prepared: it throws no more but what the executor throws.
  struct Pass {
    SoftmaxDecoder& decoder;
    SoftmaxStep<T> step;
    std::vector<SpreadSplitKv<T>> chunks = {};  // of rows_at_once() rows each
    std::uint64_t number = 0;                   // of what the rows see
    Traffic sent = {};

    Traffic traffic() const { return sent; }
    std::uint64_t plan_number() const { return number; }

    std::exception_ptr run(const ExecutorRef& executor) {
      const SequenceShape rows = decoder.rows_after(step.inputs);
      decoder.put_new(step.inputs);
      std::exception_ptr error;
      Index first = 0;
      for (SpreadSplitKv<T>& chunk : chunks) {
        const SequenceShape of_chunk = decoder.chunk(rows, first);
        const std::exception_ptr thrown =
            decoder.run(chunk, step.rows(first, of_chunk.queries), of_chunk, sent, executor);
        if (!error) error = thrown;
        first += of_chunk.queries;
      }
      return error;
    }
  };

  Fixed agreed_parts() const {
    std::optional<Fixed> made;
    const std::string options = detail::options_text(op_);
    detail::together(*ranks_, call_text(".decoder, reserve ", shape_.reserve) + options, [&] {
      check_softmax_decoder<T>(op_, shape_);
      RetainedKeys scope(op_, shape_);
      if (scope.is_bounded()) {
        refuse(Op::name(), "every head has a bounded window",
               "keep the small cache on every rank, with op.decoder");
      }
      const Index width = Workspace::size_of(shape_.width, Index{sizeof(T)});
      const Index value_width = Workspace::size_of(shape_.value_width, Index{sizeof(T)});
      made.emplace(Fixed{scope,
                         {shape_.query_heads, shape_.key_heads, scope.period()},
                         {kKeySegment * common_step(scope), ranks_->size()},
                         Workspace::size_of(width, 1) + value_width});
    });
    return std::move(*made);
  }

  /// A multiple of the steps of all runs, as far as it is at most kMostStep.
  static Index common_step(const RetainedKeys& scope) {
    Index steps = 1;
    for (Index h = 0; h < scope.period(); ++h) {
      const AnyPattern& pattern = scope.pattern(h);
      for (Index stage = 0; stage < pattern.stage_count(); ++stage) {
        const Index step = pattern.plan(stage, {}).row_step();
        if (step > kMostStep || std::lcm(steps, step) > kMostStep) continue;
        steps = std::lcm(steps, step);
      }
    }
    return steps;
  }

  Index own_count(Index length) const { return fixed_.blocks.count(ranks_->rank(), length); }

  /// The number of rows that are computed at a time.
  Index rows_at_once() const {
    return kMostRows / (std::max)(Index{1}, fixed_.groups.most_heads());
  }

  void truncate(Index length) noexcept {
    length_ = length;
    cache_.truncate(own_count(length));
  }

  void check_tokens(const KeyValueTokens<T>& tokens, Index most) const {
    check_decoder_tokens(Op::name(), shape_, tokens.k, tokens.v, most);
  }

  /// Makes room for this rank's part of that many tokens in all.
  void make_room(Index tokens) { cache_.make_room((std::max)(Index{1}, own_count(tokens))); }

  /// Appends tokens. \param check checks what this rank brings
  /// \param put_own appends the tokens of this rank, for which there is room
  template <class Check, class Put>
  void append(const char* call, Index count, const Check& check, const Put& put_own) {
    detail::together(*ranks_, call_text(std::string(call).append(" of "), count), check);
    detail::together(*ranks_, Op::name(), [&] { make_room(length_ + count); });
    put_own();
    length_ += count;
  }

  /// Appends those of the next tokens that this rank keeps. \pre there is room for them
  void put(const View<const T>& k, const View<const T>& v) noexcept {
    fixed_.blocks.for_each_range(
        ranks_->rank(), length_, length_ + k.rows(), [&](const Range& range) {
          cache_.append(k, v, range.begin - length_, range.end - range.begin);
        });
  }
  void put_new(const SoftmaxInputs<T>& inputs) noexcept {
    if (!fovea::detail::has_new_tokens(inputs)) return;
    put(inputs.k, inputs.v);
    length_ += inputs.k.rows();
  }

  /// The last rows of a sequence that ends with the new tokens.
  SequenceShape rows_after(const SoftmaxInputs<T>& inputs) const {
    const Index after = length_ + fovea::detail::new_tokens(inputs);
    return {inputs.q.rows(), after, after - inputs.q.rows()};
  }
  /// Those of them that are computed at a time, from row `first` on.
  SequenceShape chunk(const SequenceShape& rows, Index first) const {
    return {(std::min)(rows_at_once(), rows.queries - first), rows.keys,
            rows.first_position + first};
  }

  /// Takes all memory for a step, and finds what this rank computes.
  std::unique_ptr<Pass> prepare(const SoftmaxStep<T>& step, const ExecutorRef& executor) {
    auto pass = std::make_unique<Pass>(Pass{*this, step});
    const SequenceShape rows = rows_after(step.inputs);
    const Index queries = shape_.batch * shape_.query_heads == 0 ? 0 : rows.queries;
    const Index period = fixed_.scope.period();
    plan_.clear();
    Index classes = 0;
    for (Index first = 0; first < queries; first += rows_at_once()) {
      for (Index h = 0; h < period; ++h, ++classes) {
        plan_.add(pattern(h, rows), chunk(rows, first), fixed_.scope.sources(h));
      }
    }
    plan_.finish();
    for (Index c = 0; c < classes; ++c) {
      const Range items = plan_.head_class(c).items;
      for (Index n = items.begin; n < items.end; ++n) {
        pass->number = number_after(pass->number, plan_.item(n).block);
      }
    }
    shares_.make(plan_, classes, fixed_.blocks, ranks_->rank());
    const typename SpreadSplitKv<T>::Decoder decoder{
        *ranks_, fixed_.blocks, fixed_.groups, {shape_.batch, shape_.width, shape_.value_width, 1},
        row_,    unit_};
    pass->chunks.reserve(static_cast<std::size_t>(classes / period));
    Index bytes = 0;
    for (Index c = 0; c < classes; c += period) {
      SpreadSplitKv<T>& added = pass->chunks.emplace_back(decoder, plan_, shares_, c);
      auto&& threads = for_work(executor, [&] { return added.products(); });
      bytes = (std::max)(bytes, added.scratch_bytes(worker_count(threads, added.task_count())));
    }
    make_room(rows.keys);
    if (bytes > scratch_.size_bytes()) scratch_ = Workspace(bytes);
    return pass;
  }

  /// The pattern of head h.
  decltype(auto) pattern(Index h, const SequenceShape& rows) const {
    if constexpr (Op::kPatternKnowsShape) {
      return op_.pattern(h, rows);
    } else {
      return fixed_.scope.pattern(h);
    }
  }

  /// Computes some rows of a step, whose tokens are there. \returns what the executor has thrown
  std::exception_ptr run(SpreadSplitKv<T>& chunk, SoftmaxStep<T> step, const SequenceShape& rows,
                         Traffic& sent, const ExecutorRef& executor) {
    step.inputs.k = cache_.keys(0, own_count(length_));
    step.inputs.v = cache_.values(0, own_count(length_));
    const SoftmaxCall<T> call(step.inputs, op_.softmax_options(),
                              op_.template score_modifier<Compute<T>, false>());
    const auto args = [&](KeySource /*source*/, Index b, Index h) {
      HeadArgs<T> of_head = call.args(call.sequences()[b], h, step.out, step.saved);
      of_head.first_position = rows.first_position;
      of_head.key_end = rows.keys;
      return of_head;
    };
    auto&& threads = for_work(executor, [&] { return chunk.products(); });
    sent.bytes_sent += chunk.bytes_sent();
    return chunk.run(step.inputs.k, step.inputs.v, args, scratch_.template data<std::byte>(),
                     sent.seconds_waited, threads);
  }

  /// What is the same on all ranks of a call, in words.
  std::string call_text(const std::string& call, Index number) const {
    std::string text(Op::name());
    text.append(call).append(std::to_string(number));
    text.append(" after ").append(std::to_string(length_)).append(" tokens, ");
    text.append(std::to_string(sizeof(T))).append(" bytes a number, ");
    return text.append(detail::sizes_text(shape_));
  }

  Op op_;
  DecoderShape shape_;
  Index length_ = 0;
  const Communicator* ranks_;
  Fixed fixed_;
  detail::MpiType row_;   // a key and its value
  detail::MpiType unit_;  // of running softmaxes
  KeyValueCache<T> cache_;
  DecodePlan plan_;      // that of the last step, kept for its memory
  DecodeShares shares_;  // likewise
  Workspace scratch_;    // likewise
};

}  // namespace distributed

FOVEA_NAMESPACE_END
