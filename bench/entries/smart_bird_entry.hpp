// SPDX-License-Identifier: MIT
/// \file
/// Entries of attention over lists of keys, and of the choice of the lists by a sketch.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/entries/softmax_entry.hpp"
#include "bench/io/sketch.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/attention/smart_bird/selection.hpp"
#include "tests/support/oracle/sketch.hpp"

namespace bench {

using fovea::IndexedAttention;
using fovea::IndexTensor;
using fovea::SmartBirdAttention;

/// K of what is measured, as in the paper.
inline constexpr Index kKeysPerRow = 20;

/// Lists of keys [1, H, Nq, K], as a pattern for the references.
struct ListedKeys {
  struct OfHead {
    View<const Index> lists;
    Index head;
    Index first_position;

    bool allows(Index i, Index j) const {
      for (Index n = 0; n < lists.width(); ++n) {
        if (lists(0, head, i - first_position, n) == j) return true;
      }
      return false;
    }
  };

  fovea::SoftmaxOptions softmax_options() const { return options; }
  OfHead pattern(Index head, const SequenceShape& sequence) const {
    return {lists, head, sequence.first_position};
  }

  View<const Index> lists;
  fovea::SoftmaxOptions options = {};
};

/// Distinct keys of each row, ascending: every key is as likely as any other.
template <class T>
IndexTensor random_keys(const AllInputs<T>& in) {
  static const T unread{};
  const SmartBirdAttention op(
      {.keys_per_row = kKeysPerRow, .policy = fovea::SamplingPolicy::random});
  AllInputs<T> sketch;  // of no dimension: it is not read
  sketch.sketch_q = View<const T>(&unread, {1, 1, in.q.rows(), 0});
  sketch.sketch_k = View<const T>(&unread, {1, 1, in.k.rows(), 0});
  return op.select(sketch.sketch(), in.q.heads());
}

/// The scores of one row under squared_inverse_log, and their units: u times the effect on a score
/// of one rounding error in each product.
template <class T>
struct ScoreTruth {
  ScoreTruth(const SmartBirdAttention& op, const AllInputs<T>& in, Index head, Index row) {
    const auto sequence = fovea_test::oracle_sequences(in).front();
    const Index position = sequence.position(row, op.options.alignment);
    const Index keys = op.options.causal ? position + 1 : in.k.rows();
    const auto sketch = fovea_test::oracle_sketch(in, op.options, sequence, row, keys);
    for (Index j = 0; j < keys; ++j) {
      const Wide<T> loss = sketch.lse - sketch.logits[static_cast<std::size_t>(j)];
      const Wide<T> u = fovea::uniform_draw<T>(op.options.seed, 0, head, position, j);
      scores.push_back(u / (loss * loss));
      units.push_back(scores.back() * 2 * (1 + sketch.largest) / loss);
    }
  }

  std::vector<Wide<T>> scores, units;
};

/// How much better a key that was left out scores than one that was kept: 0 if the lists are right.
template <class T>
Error selection_error(const SmartBirdAttention& op, const AllInputs<T>& in,
                      const View<const Index>& lists, Index samples) {
  constexpr double u = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  Error error;
  for (Index head = 0; head < lists.heads(); ++head) {
    for (Index s = 0; s < std::min(samples, lists.rows()); ++s) {
      const Index row = sampled_row(s, std::min(samples, lists.rows()), head, lists.rows());
      const ScoreTruth<T> truth(op, in, head, row);
      std::vector<bool> kept(truth.scores.size());
      Index count = 0;
      std::size_t worst = truth.scores.size();
      for (Index n = 0; n < lists.width(); ++n) {
        const Index key = lists(0, head, row, n);
        if (key < 0) break;
        const auto j = static_cast<std::size_t>(key);
        kept[j] = true;
        ++count;
        if (worst == truth.scores.size() || truth.scores[j] < truth.scores[worst]) worst = j;
      }
      if (count < std::min<Index>(lists.width(), static_cast<Index>(kept.size()))) {
        error.add(std::numeric_limits<double>::infinity(), 1);
      }
      for (std::size_t j = 0; j < kept.size(); ++j) {
        if (kept[j]) continue;
        const auto gap = static_cast<double>(truth.scores[j] - truth.scores[worst]);
        error.add(std::max(0.0, gap), u * static_cast<double>(truth.units[j] + truth.units[worst]));
      }
    }
  }
  return error;
}

/// What a pass over lists reads, and the lists: those that it is given, or those that it chooses.
template <class T>
struct ListData {
  ListData(const AllInputs<T>& in, const IndexedAttention&) : inputs(in), lists(random_keys(in)) {
    inputs.indices = lists.view();
    inputs.sketch_q = inputs.sketch_k = {};
  }
  ListData(const AllInputs<T>& in, const SmartBirdAttention& op)
      : inputs(in), lists({1, in.q.heads(), in.q.rows(), op.options.keys_per_row}) {}
  ListData(const ListData&) = delete;
  ListData& operator=(const ListData&) = delete;

  AllInputs<T> inputs;
  IndexTensor lists;
  bool are_saved = false;  ///< by the pass: otherwise they are chosen again to judge its output
};

/// Attention over lists, given or chosen; in float.
template <class O>
struct ListSubject : Subject<O> {
  template <class T, class S>
  using Data = ListData<T>;

  static constexpr bool kChooses = std::is_same_v<O, SmartBirdAttention>;
  static constexpr bool kInDouble = false;
  static constexpr bool kIn16Bits = true;

  auto shape(const AttentionShape& s) const {
    return shape_for<O>(s, kChooses ? kSketchWidth : kKeysPerRow);
  }
  template <class Saved, class D>
  static void add_saved(Saved& saved, D& data) {
    if constexpr (kChooses) saved.indices = data.lists.view();
    data.are_saved = true;
  }
  template <class T>
  static ListedKeys listed(const ListData<T>& data) {
    return {data.lists.view()};
  }
  template <class T>
  Error error(ListData<T>& data, const View<const T>& out, Index samples,
              const Rounding& rounding) const {
    Error error;
    if constexpr (kChooses) {
      if (!data.are_saved) this->op.select(data.inputs.sketch(), data.lists.view());
      error = selection_error<T>(this->op, data.inputs, std::as_const(data.lists).view(), samples);
    }
    error.add(softmax_error(softmax_oracle(listed(data), data.inputs), data.inputs, out, samples,
                            rounding));
    return error;
  }
  template <class T>
  Error gradient_error(const ListData<T>& data, const View<const T>& d_out,
                       const AllGrads<T>& grads, Index samples) const {
    return softmax_gradient_error(reference_mask(listed(data), fovea::shape_of(data.inputs)),
                                  data.inputs, d_out, grads, samples);
  }
  void describe(Entry& entry) const {
    const bool causal = this->op.options.causal;
    if (kChooses) entry.sketch = {kSketchWidth, causal};
    entry.causal = causal;
    entry.attended_pairs = [causal](const AttentionShape& shape) {
      const SmartBirdAttention listing({.keys_per_row = kKeysPerRow, .causal = causal});
      return shape.query_heads *
             listing.attended_pairs(shape_for<SmartBirdAttention>(shape, kSketchWidth));
    };
  }
};

/// Choices of keys alone, whose output is not touched.
inline Entry select_entry(Names names, const SmartBirdAttention& op, std::vector<Family> families) {
  names.pass = Pass::select;
  Entry entry =
      entry_of(std::move(names), ListSubject<SmartBirdAttention>{{op}}, std::move(families));
  entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
  entry.f32 = {
      [op](const AllInputs<float>& in, const View<float>&) {
        const auto data = std::make_shared<ListData<float>>(in, op);
        const auto run = [=](ThreadPool& pool) {
          op.select(data->inputs.sketch(), data->lists.view(), pool);
        };
        const auto error = [=](Index samples) {
          return selection_error<float>(op, data->inputs, data->lists.view(), samples);
        };
        return Prepared{run, error};
      },
      [op](const AttentionShape& shape, Index workers) {
        const auto sizes = shape_for<SmartBirdAttention>(shape, kSketchWidth);
        const auto in = fovea::detail::of_shape<fovea::SmartBirdInputs<float>>(sizes);
        const auto lists = fovea::detail::only_shape<Index>(
            {sizes.batch, sizes.query_heads, sizes.queries, op.options.keys_per_row});
        return fovea::detail::counted_bytes(workers, [&](const fovea::ExecutorRef& executor) {
          fovea::select_keys(op.options, fovea::detail::sketch_of(in), lists, nullptr, executor);
        });
      }};
  return entry;
}

/// Forward passes, backward ones, or both. \param other as of pass_entry
template <class Op, class Other = NoOther>
Entry list_entry(Names names, const Op& op, std::vector<Family> families, const Other& other = {}) {
  return pass_entry(std::move(names), ListSubject<Op>{{op}}, std::move(families), other);
}

/// A decoder with some tokens.
template <class Of, class T, class S>
struct ListDecoding {
  ListDecoding(const Of& subject, const AllInputs<T>& in, const View<T>& out)
      : of(subject),
        data(in, of.op),
        call(in, out),
        decoder(of.op.template decoder<S>({.batch = 1,
                                           .query_heads = in.q.heads(),
                                           .key_heads = in.k.heads(),
                                           .width = in.q.width(),
                                           .value_width = in.v.width(),
                                           .reserve = in.k.rows(),
                                           .sketch_width = in.sketch_k.width()})) {
    decoder.append(call.inputs.k, call.inputs.v, in.sketch_k);
    query.q = call.inputs.q;
    query.sketch_q = in.sketch_q;
    data.are_saved = true;
  }

  void step(ThreadPool& pool) {
    decoder.step(query, call.out, {.indices = data.lists.view()}, pool);
  }
  Error error(Index samples) {
    call.widen();
    return of.error(data, View<const T>(call.as_numbers), samples, rounding_to<S, T>());
  }

  Of of;
  ListData<T> data;
  StoredCall<S, T> call;
  AllInputs<S> query;
  fovea::SmartBirdDecoder<S> decoder;
};

/// Decoding steps: one query after N tokens.
inline Entry list_decode_entry(Names names, const SmartBirdAttention& op,
                               std::vector<Family> families) {
  return steps_entry<ListDecoding>(std::move(names), ListSubject<SmartBirdAttention>{{op}},
                                   std::move(families));
}

}  // namespace bench
