// SPDX-License-Identifier: MIT
/// \file
/// Included by smart_bird_forward.hpp, where it is documented.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/attention/smart_bird/rows.hpp"
#include "fovea/attention/smart_bird/selection.hpp"
#include "fovea/distributed/indexed/backward_pass.hpp"
#include "fovea/distributed/indexed/listed_keys.hpp"
#include "fovea/distributed/messages/attention_calls.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/rows/row_set.hpp"
#include "fovea/distributed/smart_bird_forward.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass.
template <class T>
class SmartBirdForwardPass final : public RankPass {
 public:
  /// The arithmetic type.
  using C = Compute<T>;

  /// Allocates all memory except for messages, which depend on the choice.
  /// \param call checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SmartBirdForwardPass(const ShardedForwardCall<SmartBirdAttention, T>& call,
                       const ExecutorRef& executor)
      : options_(call.op.options),
        inputs_(call.inputs),
        rows_(call.rows),
        sketch_(inputs_.sketch_k.batch(), rows_.count(), {{1, inputs_.sketch_k.width()}}),
        numbers_(inputs_.q.batch(), rows_.count(), {{1, 1}}),
        keys_(inputs_.k, inputs_.v, rows_),
        sketch_exchange_(rows_.ranks(), sketch_,
                         {ExchangePlan::of(rows_.layout(), rows_.ranks().rank(),
                                           [&](int rank) { return choices_of(rank); })}),
        attention_(options_, listed(), call.out, call.saved, memory_of(executor)) {
    attention_.take_scratch(executor);
    sketch_.put(0, inputs_.sketch_k, rows_.own());
  }

  /// Sends, receives, chooses and attends.
  std::exception_ptr run(const ExecutorRef& executor) override {
    sketch_exchange_.begin();
    sketch_exchange_.begin_stage(0);
    std::vector<Range> needed;
    std::exception_ptr error = fovea::detail::caught([&] {
      choose(executor);
      needed = chosen_rows();
    });
    sketch_exchange_.end();
    // A failed rank requests nothing, and sends what others request.
    keys_.receive(needed);
    if (!error) error = fovea::detail::caught([&] { attention_.compute(executor); });
    keys_.end();
    return error;
  }

 private:
  /// The keys that the rows of a rank may choose from.
  std::vector<Range> choices_of(int rank) const {
    const std::vector<Range>& own = rows_.layout().of(rank);
    if (own.empty()) return {};
    return {{0, options_.causal ? own.back().end : rows_.count()}};
  }

  IndexedInputs<T> listed() const {
    SmartBirdInputs<T> whole = inputs_;
    whole.k = keys_.k();
    whole.v = keys_.v();
    return with_indices(whole, {});
  }

  void choose(const ExecutorRef& executor) {
    const View<Index>& indices = attention_.indices();
    for (const OwnRange& range : own_ranges(rows_)) {
      if (indices.size() == 0) continue;
      SketchInputs<C> sketch = fovea::detail::sketch_of(inputs_);
      sketch.sketch_q = range.of(inputs_.sketch_q);
      sketch.sketch_k = sketch_.tensor(0);
      select_keys(options_, sketch, range.of(indices), numbers_.tensor(0).data(), executor,
                  range.range());
    }
    numbers_.get(0,
                 View<bool>(attention_.is_number(), {inputs_.q.batch(), 1, rows_.own_count(), 1}),
                 rows_.own());
  }

  /// The keys that some row of this rank has chosen.
  std::vector<Range> chosen_rows() const {
    RowSet chosen(rows_.count());
    for_each_listed(View<const Index>(attention_.indices()),
                    [&](Index /*row*/, Index key) { chosen.add(key); });
    return chosen.ranges();
  }

  const SmartBirdOptions& options_;
  const SmartBirdInputs<T>& inputs_;
  const Sharding& rows_;
  RowTensors<C> sketch_;      // the keys of the sketch
  RowTensors<bool> numbers_;  // is_number of SketchSelectArgs
  ListedKeys<T> keys_;
  Exchange sketch_exchange_;
  SmartBirdRows<T> attention_;
};

template <class T>
CommStats forward(const ShardedForwardCall<SmartBirdAttention, T>& call) {
  const SmartBirdAttention& op = call.op;
  const auto check = [&] {
    if (!call.inputs.draws.empty()) {
      refuse_given(op.name(), "draws", "the sequence is distributed over ranks");
    }
    detail::check_call(call,
                       [&](const SmartBirdInputs<T>& own) { op.check(own, call.out, call.saved); });
  };
  const std::string sketch = ", sketch " + detail::sizes_text(call.inputs.sketch_k);
  return detail::run_call(
      call, op.options.alignment, detail::call_text(call) + sketch, check,
      [&](const auto&... arguments) { op.forward(arguments...); },
      [&](const ExecutorRef& threads) {
        return std::make_unique<SmartBirdForwardPass<T>>(call, threads);
      });
}

namespace detail {

/// Checks the chosen keys: [B, Hq, own rows, K], keys of the whole sequence or -1.
/// \throws std::invalid_argument
template <class T>
void check_choice(const ShardedBackwardCall<SmartBirdAttention, T>& call) {
  const char* const name = SmartBirdAttention::name();
  if (call.saved.indices.empty()) {
    refuse_missing(name, "indices",
                   "those that forward saved, since the sequence is distributed over ranks");
  }
  check_indices(name, call.inputs.q, View<const Index>(call.saved.indices), call.rows.count());
}

}  // namespace detail

template <class T>
CommStats backward(const ShardedBackwardCall<SmartBirdAttention, T>& call) {
  std::string text = detail::call_text(call);
  text.append(", keys ").append(std::to_string(call.saved.indices.width()));
  const auto check = [&] {
    detail::check_call(call, [&](const SmartBirdInputs<T>& own) {
      SmartBirdSaved<T> lse_alone = call.saved;
      lse_alone.indices = {};
      call.op.check_backward(own, call.out, lse_alone, call.d_out, call.grads);
    });
    detail::check_choice(call);
  };
  return detail::run_call(call, text, check, [&](const ExecutorRef& /*threads*/) {
    auto listed = with_indices(call.inputs, View<const Index>(call.saved.indices));
    listed.key_lengths = {};      // chosen keys are visible
    listed.first_positions = {};  // independent of row positions
    return std::make_unique<IndexedBackwardPass<T>>(call, listed, IndexedSaved<T>{call.saved.lse});
  });
}

FOVEA_RANKS_PASSES(FORWARD, SmartBirdAttention)
FOVEA_IN_SHORT_UNIT(FOVEA_RANKS_FORWARD, SmartBirdAttention)
FOVEA_RANKS_PASSES(BACKWARD, SmartBirdAttention)

}  // namespace distributed

FOVEA_NAMESPACE_END
