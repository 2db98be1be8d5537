// SPDX-License-Identifier: MIT
/// \file
/// One rank's backward pass of attention to gathered keys.
#pragma once

#include <exception>
#include <optional>
#include <utility>
#include <vector>

#include "fovea/attention/indexed.hpp"
#include "fovea/attention/indexed/backward.hpp"
#include "fovea/distributed/indexed/listed_keys.hpp"
#include "fovea/distributed/indexed/query_rows.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/messages/requests.hpp"
#include "fovea/distributed/rows/places_of_rows.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One backward pass. Every rank takes the same steps, whichever gradients it requests.
template <class T>
class IndexedBackwardPass final : public RankPass {
 public:
  /// Allocates the memory for tensors. Memory of messages and received rows depends on the lists,
  /// and is allocated before gradients are written.
  /// \param call of attention to gathered keys or Smart Bird attention, checked
  /// \param inputs this rank's; lists contain only visible keys   \throws std::bad_alloc
  template <class Call>
  IndexedBackwardPass(const Call& call, const IndexedInputs<T>& inputs,
                      const IndexedSaved<T>& saved)
      : scale_(call.op.options.scale),
        inputs_(inputs),
        out_(call.out),
        saved_(saved),
        d_out_(call.d_out),
        grads_(call.grads),
        rows_(call.rows),
        keys_(inputs.k, inputs.v, rows_),
        queries_(inputs.q, out_, d_out_, View<const T>(saved.lse), rows_),
        lists_(inputs.q.batch(), rows_.count(), {{inputs.q.heads(), inputs.indices.width()}}) {
    lists_.put(0, inputs.indices, rows_.own());
  }

  std::exception_ptr run(const ExecutorRef& executor) override {
    std::vector<Range> needed;
    std::vector<std::vector<Range>> sent(static_cast<std::size_t>(rows_.ranks().size()));
    std::exception_ptr error = fovea::detail::caught([&] { find(needed, sent); });
    keys_.receive(needed);
    keys_.end();
    if (!error) error = fovea::detail::caught([&] { prepare_rows(executor); });
    const ExchangePlan plan = announced(rows_.ranks(), std::move(sent));
    exchange_rows(rows_.ranks(), queries_.tensors(), plan);
    exchange_rows(rows_.ranks(), lists_, plan);
    if (!error) error = fovea::detail::caught([&] { compute(plan, executor); });
    return error;
  }

 private:
  /// Finds the keys listed by this rank's rows, and the rows that list keys of each other rank.
  void find(std::vector<Range>& needed, std::vector<std::vector<Range>>& sent) const {
    const RowOwners ranks(rows_.layout());
    const PlacesInRanges own(rows_.own());
    RowSet listed(rows_.count());
    std::vector<RowSet> to(sent.size(), RowSet(own.count()));
    for_each_listed(inputs_.indices, [&](Index n, Index key) {
      listed.add(key);
      const int rank = ranks.rank(key);
      if (rank != rows_.ranks().rank()) to[static_cast<std::size_t>(rank)].add(n);
    });
    needed = listed.ranges();
    for (std::size_t rank = 0; rank < to.size(); ++rank) sent[rank] = own.rows(to[rank].ranges());
  }

  /// Prepares the gradients of this rank's rows, with all keys that they list.
  void prepare_rows(const ExecutorRef& executor) {
    IndexedInputs<T> of_rows = inputs_;
    of_rows.k = keys_.k();
    of_rows.v = keys_.v();
    row_pass_.emplace(of_rows, TensorLists(inputs_.indices, rows_.count(), {.scale = scale_}), out_,
                      saved_, d_out_, IndexedGrads<T>{grads_.q, {}, {}});
    row_pass_->reserve(executor);
    queries_.put_lse_low([&](const View<T>& to) { row_pass_->find_lse_low(to, executor); });
  }

  void compute(const ExchangePlan& plan, const ExecutorRef& executor) {
    const std::vector<Range> ranges = plan.with_received(rows_.own(), rows_.count());
    typename QueryRows<T>::GatheredRows some(queries_, ranges);
    CompactRows<Index> lists(lists_, 0, ranges);
    keep_own_keys(lists.view());

    // This rank's keys, with all rows that list them.
    IndexedInputs<T> of_keys = inputs_;
    of_keys.q = some.q.view();
    of_keys.indices = lists.view();
    IndexedBackward<T> key_pass(
        of_keys, TensorLists(View<const Index>(lists.view()), rows_.own_count(), {.scale = scale_}),
        View<const T>(some.out.view()), {some.lse.view()}, View<const T>(some.d_out.view()),
        {{}, grads_.k, grads_.v});
    key_pass.give_lse_low(View<const T>(some.lse_low.view()));
    key_pass.reserve(executor);
    if (!grads_.q.empty()) row_pass_->compute(executor);
    if (!grads_.k.empty() || !grads_.v.empty()) key_pass.compute(executor);
  }

  /// Keeps in lists only this rank's keys, by place among its rows.
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

  std::optional<double> scale_;
  IndexedInputs<T> inputs_;
  View<const T> out_;
  IndexedSaved<T> saved_;
  View<const T> d_out_;
  IndexedGrads<T> grads_;
  const Sharding& rows_;
  ListedKeys<T> keys_;
  QueryRows<T> queries_;     // tensors of query rows
  RowTensors<Index> lists_;  // the keys of rows
  std::optional<IndexedBackward<T>> row_pass_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
