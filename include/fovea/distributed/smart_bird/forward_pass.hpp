// SPDX-License-Identifier: MIT
/// \file
/// One rank's forward pass of Smart Bird attention.
#pragma once

#include <exception>
#include <vector>

#include "fovea/attention/smart_bird/rows.hpp"
#include "fovea/attention/smart_bird/selection.hpp"
#include "fovea/distributed/indexed/listed_keys.hpp"
#include "fovea/distributed/messages/exchange.hpp"
#include "fovea/distributed/messages/pass.hpp"
#include "fovea/distributed/rows/own_range.hpp"
#include "fovea/distributed/rows/row_set.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// One forward pass.
template <class T>
class SmartBirdForwardPass final : public RankPass {
 public:
  /// The arithmetic type.
  using C = Compute<T>;

  /// Allocates all memory except for messages, which depend on the choice.
  /// \param inputs, out, saved this rank's, checked
  /// \throws std::bad_alloc, and std::runtime_error if MPI fails
  SmartBirdForwardPass(const SmartBirdOptions& options, const SmartBirdInputs<T>& inputs,
                       const View<T>& out, const SmartBirdSaved<T>& saved, const Sharding& rows,
                       const ExecutorRef& executor)
      : options_(options),
        inputs_(inputs),
        rows_(rows),
        sketch_(inputs.sketch_k.batch(), rows.count(), {{1, inputs.sketch_k.width()}}),
        numbers_(inputs.q.batch(), rows.count(), {{1, 1}}),
        keys_(inputs.k, inputs.v, rows),
        sketch_exchange_(rows.ranks(), sketch_,
                         {ExchangePlan::of(rows.layout(), rows.ranks().rank(),
                                           [&](int rank) { return choices_of(rank); })}),
        attention_(options, listed(), out, saved, memory_of(executor)) {
    attention_.take_scratch(executor);
    sketch_.put(0, inputs.sketch_k, rows.own());
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

  SmartBirdOptions options_;
  SmartBirdInputs<T> inputs_;
  const Sharding& rows_;
  RowTensors<C> sketch_;      // the keys of the sketch
  RowTensors<bool> numbers_;  // is_number of SketchSelectArgs
  ListedKeys<T> keys_;
  Exchange sketch_exchange_;
  SmartBirdRows<T> attention_;
};

}  // namespace distributed

FOVEA_NAMESPACE_END
