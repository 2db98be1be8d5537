// SPDX-License-Identifier: MIT
/// \file
/// One backward pass of softmax attention over a sharded sequence. The gradients of queries need
/// the keys that they see, those of keys the queries that see them: the rank receives both. Pairs
/// of its own queries and keys are computed once, others once by each of two ranks; only gradients
/// of sinks are reduced across ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/softmax/backward.hpp"
#include "fovea/attention/softmax/head_plans.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/whole_call.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/rows/row_tensors.hpp"
#include "fovea/distributed/softmax/call.hpp"
#include "fovea/distributed/softmax/logit_rows.hpp"
#include "fovea/distributed/softmax/sink_gradients.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass. Every rank takes the same steps, whichever gradients it requests.
template <class T>
class SoftmaxBackwardPass final : public RankPass {
 public:
  /// Allocates the memory for tensors, on every rank, and prepares all messages.
  /// \param inputs, out, saved, d_out, grads this rank's, checked; they are not read yet
  /// \param one_row which of bias and mask have one row for all queries
  /// \param d_lse that of this rank's rows, or empty on all ranks
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SoftmaxBackwardPass(const SoftmaxPatterns& op, const ScoreModifierArgs<T>& modifier,
                      const SoftmaxInputs<T>& inputs, const View<const T>& out,
                      const SoftmaxSaved<T>& saved, const View<const T>& d_out,
                      const SoftmaxGrads<T>& grads, const Sharding& rows,
                      const detail::BroadcastLogits& one_row = {}, const View<const T>& d_lse = {})
      : rows_(rows),
        inputs_(inputs),
        out_(out),
        saved_(saved),
        d_out_(d_out),
        d_lse_(d_lse),
        grads_(grads),
        plans_(op, inputs.q.heads(), detail::whole_sequence(op, rows)),
        plan_number_(number_of(plans_)),
        keys_travel_(exchange(
            [&](int rank) { return keys_seen(plans_, rows.layout().of(rank), rows.count()); })),
        queries_travel_(exchange(
            [&](int rank) { return rows_seeing(plans_, rows.layout().of(rank), rows.count()); })),
        logits_travel_(logit_transfers()),
        bias_(inputs.bias, one_row.bias, logits_travel_, rows),
        mask_(inputs.mask, one_row.mask, logits_travel_, rows),
        query_plans_(plans_.cut([&](const AnyPlan& plan) {
          return std::vector<AnyPlan>{AnyPlan(PlanPart(plan, rows.own()))};
        })),
        pair_plans_(plans_.cut([&](const AnyPlan& plan) {
          return std::vector<AnyPlan>{AnyPlan(PlanPart::of_gradients(plan, rows.own()))};
        })),
        keys_(inputs.q.batch(), rows.count(), key_tensors(inputs)),
        queries_(inputs.q.batch(), rows.count(),
                 {{inputs.q.heads(), inputs.q.width()},
                  {inputs.q.heads(), inputs.v.width()},
                  {inputs.q.heads(), inputs.v.width()},
                  {inputs.q.heads(), 1},
                  {inputs.q.heads(), 1},
                  {d_lse.empty() ? 0 : inputs.q.heads(), 1}}),
        d_keys_(inputs.q.batch(), rows.count(), key_tensors(inputs)),
        d_queries_(inputs.q.batch(), rows.count(), {{inputs.q.heads(), inputs.q.width()}}),
        d_bias_(grads.bias.batch(), rows.count(),
                {{is_in_place() ? 0 : grads.bias.heads(), grads.bias.width()}}),
        call_(whole_inputs(inputs), op.options(), modifier),
        row_pass_(call_, query_plans_, queries_.tensor(kOut), {queries_.tensor(kLse)},
                  queries_.tensor(kGradOfOut), {}, whole_d_lse()),
        pair_pass_(call_, pair_plans_, queries_.tensor(kOut), {queries_.tensor(kLse)},
                   queries_.tensor(kGradOfOut), written_grads(), whole_d_lse()),
        key_exchange_(rows.ranks(), keys_, {keys_travel_}),
        query_exchange_(rows.ranks(), queries_, {queries_travel_}) {
    const std::vector<Range>& own = rows.own();
    // Own and received rows share large pages.
    keys_.expect(keys_travel_.with_received(own, rows.count()));
    queries_.expect(queries_travel_.with_received(own, rows.count()));
    if (is_in_place()) return;
    d_keys_.expect(own);
    d_queries_.expect(own);
  }

  /// A hash of the visible keys of all rows, as in the forward pass.
  std::uint64_t plan_number() const override { return plan_number_; }

  /// Allocates the scratch memory. \throws std::bad_alloc, and std::runtime_error if MPI fails
  void reserve(const ExecutorRef& executor) {
    row_pass_.take_scratch(executor);
    pair_pass_.take_scratch(executor);
    if (grads_.sink.empty()) return;
    const Index heads = inputs_.q.heads();
    sinks_.emplace(rows_.ranks(), rows_.layout(), inputs_.q.batch(), heads,
                   (std::max)(Index{1}, worker_count(executor, heads)));
  }

  /// \pre reserve(executor) was called, once
  std::exception_ptr run(const ExecutorRef& executor) override {
    put_rows();
    key_exchange_.begin();
    bias_.run();
    mask_.run();
    key_exchange_.begin_stage(0);
    std::exception_ptr error = fovea::detail::caught([&] {
      row_pass_.look_at_lse(executor);
      row_pass_.compute(executor);
      keep_lse_low();
      if (!grads_.bias.empty()) add_bias(executor);
    });
    if (sinks_) {
      const std::exception_ptr thrown = sinks_->run(row_pass_, call_.sequences(), executor);
      if (!error) error = thrown;
    }
    query_exchange_.begin();
    query_exchange_.begin_stage(0);
    if (!error) {
      error = fovea::detail::caught([&] {
        if (is_any_low()) pair_pass_.give_lse_low(queries_.tensor(kLseLow), executor);
        pair_pass_.compute(executor);
      });
    }
    key_exchange_.end();
    query_exchange_.end();
    if (!error) write();
    return error;
  }

 private:
  /// The tensors of a query row.
  enum : std::size_t { kQ, kOut, kGradOfOut, kLse, kLseLow, kGradOfLse };

  static std::vector<std::pair<Index, Index>> key_tensors(const SoftmaxInputs<T>& in) {
    return {{in.k.heads(), in.k.width()}, {in.v.heads(), in.v.width()}};
  }

  SoftmaxInputs<T> whole_inputs(const SoftmaxInputs<T>& in) const {
    SoftmaxInputs<T> made = in;
    made.q = queries_.tensor(kQ);
    made.k = keys_.tensor(0);
    made.v = keys_.tensor(1);
    made.bias = bias_.view();
    made.mask = mask_.view();
    return made;
  }

  View<const T> whole_d_lse() const {
    return d_lse_.empty() ? d_lse_ : View<const T>(queries_.tensor(kGradOfLse));
  }

  void put_rows() const {
    const std::vector<Range>& own = rows_.own();
    keys_.put(0, inputs_.k, own);
    keys_.put(1, inputs_.v, own);
    queries_.put(kQ, inputs_.q, own);
    queries_.put(kOut, out_, own);
    queries_.put(kGradOfOut, d_out_, own);
    queries_.put(kLse, View<const T>(saved_.lse), own);
    if (!d_lse_.empty()) queries_.put(kGradOfLse, d_lse_, own);
  }

  /// Whether gradients are written directly to their tensors. Kernels can address one range there,
  /// but not several.
  bool is_in_place() const { return rows_.own().size() == 1; }

  /// The gradient tensors, for all rows; only this rank's rows are written.
  SoftmaxGrads<T> written_grads() const {
    SoftmaxGrads<T> written;
    written.q = place(grads_.q, d_queries_.tensor(0));
    written.k = place(grads_.k, d_keys_.tensor(0));
    written.v = place(grads_.v, d_keys_.tensor(1));
    return written;
  }

  /// The gradient tensor to write; only this rank's rows may be written.
  View<T> place(const View<T>& own, const View<T>& window) const {
    if (own.empty()) return own;
    return is_in_place() ? own_ranges(rows_).front().of(own) : window;
  }

  template <class Needs>
  ExchangePlan exchange(const Needs& needs) const {
    return ExchangePlan::of(rows_.layout(), rows_.ranks().rank(), needs);
  }

  LogitTransfers logit_transfers() const {
    const bool has_logits = !inputs_.bias.empty() || !inputs_.mask.empty();
    return has_logits ? LogitTransfers(queries_travel_, plans_, rows_) : LogitTransfers();
  }

  /// Computes the gradient of the bias for this rank's query rows.
  void add_bias(const ExecutorRef& executor) {
    if (is_in_place()) {  // the window holds zeros
      for (Index b = 0; b < grads_.bias.batch(); ++b) {
        fovea::detail::fill_rows(grads_.bias, b, 0, grads_.bias.rows(), T{0});
      }
    }
    row_pass_.add_to_bias(place(grads_.bias, d_bias_.tensor(0)), executor);
  }

  /// Stores the rounding error of large lse, which was found with the keys of this rank's queries.
  void keep_lse_low() const {
    const View<T> low = queries_.tensor(kLseLow);
    for (Index b = 0; b < low.batch(); ++b) {
      for (Index h = 0; h < low.heads(); ++h) {
        const T* const from = row_pass_.lse_low(call_.sequences()[b], h);
        if (from == nullptr) return;
        for (const Range& own : rows_.own()) {
          for (Index n = own.begin; n < own.end; ++n) low(b, h, n, 0) = from[n];
        }
      }
    }
  }

  /// Whether a row that this rank holds or received has a nonzero low part.
  bool is_any_low() const {
    const View<T> low = queries_.tensor(kLseLow);
    for (Index b = 0; b < low.batch(); ++b) {
      for (Index n = 0; n < low.rows(); ++n) {
        for (Index h = 0; h < low.heads(); ++h) {
          if (low(b, h, n, 0) != 0) return true;
        }
      }
    }
    return false;
  }

  /// Writes the requested gradients that are not in place.
  void write() const {
    if (sinks_) sinks_->write(grads_.sink);
    if (is_in_place()) return;
    if (!grads_.q.empty()) d_queries_.get(0, grads_.q, rows_.own());
    if (!grads_.k.empty()) d_keys_.get(0, grads_.k, rows_.own());
    if (!grads_.v.empty()) d_keys_.get(1, grads_.v, rows_.own());
    if (!grads_.bias.empty()) d_bias_.get(0, grads_.bias, rows_.own());
  }

  const Sharding& rows_;
  SoftmaxInputs<T> inputs_;
  View<const T> out_;
  SoftmaxSaved<T> saved_;
  View<const T> d_out_;
  View<const T> d_lse_;
  SoftmaxGrads<T> grads_;
  HeadPlans plans_;
  std::uint64_t plan_number_;
  ExchangePlan keys_travel_;
  ExchangePlan queries_travel_;
  LogitTransfers logits_travel_;
  LogitRows<T> bias_;
  LogitRows<bool> mask_;
  HeadPlans query_plans_;  // this rank's query rows, with all their visible keys
  HeadPlans pair_plans_;   // the pairs for gradients of this rank's queries and keys
  RowTensors<T> keys_;
  RowTensors<T> queries_;
  RowTensors<T> d_keys_;
  RowTensors<T> d_queries_;
  RowTensors<T> d_bias_;  // empty if its gradient is in place
  SoftmaxCall<T> call_;
  SoftmaxBackward<T> row_pass_;   // everything but the gradients of q, k and v
  SoftmaxBackward<T> pair_pass_;  // these gradients
  Exchange key_exchange_;
  Exchange query_exchange_;
  std::optional<SinkGradients<T>> sinks_;  // if requested
};

}  // namespace distributed

FOVEA_NAMESPACE_END
