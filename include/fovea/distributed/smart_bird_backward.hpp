// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of Smart Bird attention over a sequence that is spread over ranks. The
/// gradients of queries need the keys that were chosen for them, those of keys the queries that
/// they were chosen for; each come to the other, and nothing is added up between ranks.
#pragma once

#include <exception>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "fovea/attention/smart_bird.hpp"
#include "fovea/distributed/call.hpp"
#include "fovea/distributed/compact_rows.hpp"
#include "fovea/distributed/exchange.hpp"
#include "fovea/distributed/places_of_rows.hpp"
#include "fovea/distributed/query_rows.hpp"
#include "fovea/distributed/requests.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass. Every rank makes the same steps, whatever gradients it wants.
template <class T>
class SmartBirdBackwardPass {
 public:
  /// Takes the memory for tensors. That of messages and of what is received depends on the choice,
  /// and is taken before gradients are written.
  /// \param inputs, out, saved, d_out, grads those of this rank, checked
  /// \throws std::bad_alloc
  SmartBirdBackwardPass(const SmartBirdOptions& options, const SmartBirdInputs<T>& inputs,
                        const View<const T>& out, const SmartBirdSaved<T>& saved,
                        const View<const T>& d_out, const SmartBirdGrads<T>& grads,
                        const Rows& rows)
      : options_(options),
        inputs_(inputs),
        out_(out),
        saved_(saved),
        d_out_(d_out),
        grads_(grads),
        rows_(rows),
        keys_(inputs.q.batch(), rows.count(),
              {{inputs.k.heads(), inputs.k.width()}, {inputs.v.heads(), inputs.v.width()}}),
        queries_(inputs.q, out, d_out, View<const T>(saved.lse), rows),
        lists_(inputs.q.batch(), rows.count(), {{inputs.q.heads(), saved.indices.width()}}) {
    keys_.expect(rows.own());
    keys_.put(0, inputs.k, rows.own());
    keys_.put(1, inputs.v, rows.own());
    lists_.put(0, View<const Index>(saved.indices), rows.own());
  }
  SmartBirdBackwardPass(const SmartBirdBackwardPass&) = delete;
  SmartBirdBackwardPass& operator=(const SmartBirdBackwardPass&) = delete;

  /// The messages of this rank. \pre run was called
  Traffic traffic() const { return traffic_; }

  /// Sends, receives and computes. All messages are exchanged even if computing throws.
  /// \returns what computing has thrown, or null
  template <class E>
  std::exception_ptr run(E&& executor) {
    std::vector<Range> needed;
    std::vector<std::vector<Range>> sent(static_cast<std::size_t>(rows_.ranks().size()));
    std::exception_ptr error = fovea::detail::caught([&] { find(needed, sent); });
    traffic_ = traffic_ + exchange_rows(rows_.ranks(), keys_,
                                        requested(rows_.ranks(), rows_.layout(), needed));
    const ExchangePlan plan = announced(rows_.ranks(), std::move(sent));
    traffic_ = traffic_ + exchange_rows(rows_.ranks(), queries_.tensors(), plan);
    traffic_ = traffic_ + exchange_rows(rows_.ranks(), lists_, plan);
    if (!error) error = fovea::detail::caught([&] { compute(plan, executor); });
    return error;
  }

 private:
  /// Calls f(row among the rank's, key) for what was chosen.
  template <class F>
  void for_each_choice(const F& f) const {
    const View<Index>& indices = saved_.indices;
    for (Index b = 0; b < indices.batch(); ++b) {
      for (Index h = 0; h < indices.heads(); ++h) {
        for (Index n = 0; n < indices.rows(); ++n) {
          for (Index c = 0; c < indices.width() && indices(b, h, n, c) >= 0; ++c) {
            f(n, indices(b, h, n, c));
          }
        }
      }
    }
  }

  /// Finds the keys that this rank's rows have chosen, and which rows have chosen keys of each
  /// other rank.
  void find(std::vector<Range>& needed, std::vector<std::vector<Range>>& sent) const {
    const RanksOfRows ranks(rows_.layout());
    const PlacesInRanges own(rows_.own());
    RowSet chosen(rows_.count());
    std::vector<RowSet> to(sent.size(), RowSet(own.count()));
    for_each_choice([&](Index n, Index key) {
      chosen.add(key);
      const int rank = ranks.rank(key);
      if (rank != rows_.ranks().rank()) to[static_cast<std::size_t>(rank)].add(n);
    });
    needed = chosen.ranges();
    for (std::size_t rank = 0; rank < to.size(); ++rank) sent[rank] = own.rows(to[rank].ranges());
  }

  template <class E>
  void compute(const ExchangePlan& plan, E&& executor) {
    const std::vector<Range> ranges = plan.with_received(rows_.own(), rows_.count());
    typename QueryRows<T>::Some some(queries_, ranges);
    CompactRows<Index> lists(lists_, 0, ranges);
    keep_own_keys(lists.view());

    // The keys of this rank, with all rows that have chosen them.
    auto of_keys = fovea::detail::inputs_as<IndexedInputs<T>>(inputs_);
    of_keys.q = some.q.view();
    of_keys.indices = lists.view();
    of_keys.key_lengths = {};
    IndexedBackward<T> key_pass(
        of_keys,
        TensorLists(View<const Index>(lists.view()), rows_.own_count(), {.scale = options_.scale}),
        View<const T>(some.out.view()), {some.lse.view()}, View<const T>(some.d_out.view()),
        {{}, grads_.k, grads_.v});
    key_pass.reserve(executor);
    // The rows of this rank, with all keys that were chosen for them.
    auto of_rows = with_indices(inputs_, View<const Index>(saved_.indices));
    of_rows.k = keys_.tensor(0);
    of_rows.v = keys_.tensor(1);
    IndexedBackward<T> row_pass(
        of_rows,
        TensorLists(View<const Index>(saved_.indices), rows_.count(), {.scale = options_.scale}),
        out_, {saved_.lse}, d_out_, {grads_.q, {}, {}});
    row_pass.reserve(executor);
    if (!grads_.q.is_none()) row_pass.compute(executor);
    if (!grads_.k.is_none() || !grads_.v.is_none()) key_pass.compute(executor);
  }

  /// Leaves in lists the keys of this rank, by their places among its rows.
  void keep_own_keys(const View<Index>& lists) const {
    const PlacesInRanges own(rows_.own());
    for (Index b = 0; b < lists.batch(); ++b) {
      for (Index h = 0; h < lists.heads(); ++h) {
        for (Index n = 0; n < lists.rows(); ++n) {
          Index kept = 0;
          for (Index c = 0; c < lists.width() && lists(b, h, n, c) >= 0; ++c) {
            const Index place = own.place(lists(b, h, n, c));
            if (place >= 0) lists(b, h, n, kept++) = place;
          }
          for (Index c = kept; c < lists.width(); ++c) lists(b, h, n, c) = -1;
        }
      }
    }
  }

  SmartBirdOptions options_;
  SmartBirdInputs<T> inputs_;
  View<const T> out_;
  SmartBirdSaved<T> saved_;
  View<const T> d_out_;
  SmartBirdGrads<T> grads_;
  const Rows& rows_;
  RowTensors<T> keys_;       // k and v
  QueryRows<T> queries_;     // what belongs to query rows
  RowTensors<Index> lists_;  // the chosen keys
  Traffic traffic_;
};

namespace detail {

/// Checks the keys that were chosen: [B, Hq, own rows, K], keys of the whole sequence or -1.
/// \throws std::invalid_argument
template <class T>
void check_choice(const SmartBirdInputs<T>& in, const SmartBirdSaved<T>& saved, const Rows& rows) {
  const char* const name = SmartBirdAttention::name();
  if (saved.indices.is_none()) {
    refuse(name, "indices", "missing",
           "what forward saved, since the sequence is spread over ranks");
  }
  const Shape& shape = saved.indices.shape();
  for (std::size_t d = 0; d < 3; ++d) {
    fovea::detail::check_extent(name, "indices", shape, d, in.q.shape()[d], "as of q");
  }
  for (Index b = 0; b < shape[0]; ++b) {
    for (Index h = 0; h < shape[1]; ++h) {
      for (Index n = 0; n < shape[2]; ++n) {
        for (Index c = 0; c < shape[3]; ++c) {
          const Index key = saved.indices(b, h, n, c);
          const Index before = c == 0 ? -1 : saved.indices(b, h, n, c - 1);
          const bool is_end = key == -1;
          const bool is_next = key > before && key < rows.count() && (c == 0 || before >= 0);
          if (is_end || is_next) continue;
          refuse(name, "an index of a row", std::to_string(key),
                 "ascending keys below " + std::to_string(rows.count()) + ", and then -1");
        }
      }
    }
  }
}

}  // namespace detail

/// Computes the gradients of Smart Bird attention over a sequence that is spread over ranks, on all
/// of them together. The bits are those of `op.backward` over the whole sequence.
/// \param inputs as in `forward`
/// \param out, saved as `forward` wrote them, with lse and the chosen keys
/// \param d_out [B, Hq, own rows, Dv]: the gradient of the loss with respect to out
/// \param grads of q, k and v, of this rank's rows: those that have a tensor are written; the ranks
/// may want different ones
/// \param executor as in `forward`
/// \returns the messages of this rank
/// \throws as `forward`; std::invalid_argument also if the chosen keys are missing, or no lists of
/// keys
///
/// Cost: the logits and gradients of weights are computed for queries and for keys once each. The
/// rows that have chosen keys of another rank go there, and the chosen keys come to them.
/// Memory: the rank's rows twice, and what it receives twice.
template <class Out, class D, class E = Serial, class T = Scalar<Out>>
requires std::floating_point<T> Traffic
backward(const SmartBirdAttention& op, const InputsOf<SmartBirdAttention, T>& inputs,
         const Out& out, const SavedOf<SmartBirdAttention, T>& saved, const D& d_out,
         const GradsOf<SmartBirdAttention, T>& grads, const Rows& rows, E&& executor = {}) {
  const View<const T> from(out);
  const View<const T> d_from(d_out);
  const char* const name = SmartBirdAttention::name();
  std::string call = detail::call_text(name, ".backward", inputs, rows);
  call.append(", keys ").append(std::to_string(saved.indices.width()));
  return detail::run_call(
      rows, name, call,
      [&] {
        detail::check_call(name, inputs, rows, [&](const SmartBirdInputs<T>& own) {
          SmartBirdSaved<T> lse_alone = saved;
          lse_alone.indices = {};
          op.check_backward(own, from, lse_alone, d_from, grads);
        });
        detail::check_choice(inputs, saved, rows);
      },
      executor,
      [&](auto& /*threads*/) {
        return std::make_unique<SmartBirdBackwardPass<T>>(op.options, inputs, from, saved, d_from,
                                                          grads, rows);
      });
}

}  // namespace distributed

FOVEA_NAMESPACE_END
