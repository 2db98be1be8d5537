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

#include "bench/entries/far_entry.hpp"
#include "bench/io/sketch.hpp"
#include "fovea/attention/indexed.hpp"
#include "fovea/attention/smart_bird.hpp"
#include "fovea/attention/smart_bird/selection.hpp"

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
  using W = Wide<T>;

  ScoreTruth(const SmartBirdAttention& op, const AllInputs<T>& in, Index head, Index row) {
    const Index position = row + in.k.rows() - in.q.rows();
    const Index keys = op.options.causal ? position + 1 : in.k.rows();
    const W scale = 1 / std::sqrt(static_cast<W>(in.sketch_q.width()));
    std::vector<W> logits;
    W sum = 0;
    W gauge = 1;
    for (Index j = 0; j < keys; ++j) {
      W dot = 0;
      W size = 0;
      for (Index c = 0; c < in.sketch_q.width(); ++c) {
        const W term = static_cast<W>(in.sketch_q(0, 0, row, c)) * in.sketch_k(0, 0, j, c);
        dot += term;
        size += std::abs(term);
      }
      logits.push_back(scale * dot);
      sum += std::exp(logits.back());
      gauge = std::max(gauge, 1 + scale * size);
    }
    for (Index j = 0; j < keys; ++j) {
      const W loss = std::log(sum) - logits[static_cast<std::size_t>(j)];
      const W u = fovea::uniform_draw<T>(op.options.seed, 0, head, position, j);
      scores.push_back(u / (loss * loss));
      units.push_back(scores.back() * 2 * gauge / loss);
    }
  }

  std::vector<W> scores, units;
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
  ListData(const IndexedAttention&, const AllInputs<T>& in) : inputs(in), lists(random_keys(in)) {
    inputs.indices = lists.view();
    inputs.sketch_q = inputs.sketch_k = {};
  }
  ListData(const SmartBirdAttention& op, const AllInputs<T>& in)
      : inputs(in), lists({1, in.q.heads(), in.q.rows(), op.options.keys_per_row}) {}
  ListData(const ListData&) = delete;
  ListData& operator=(const ListData&) = delete;

  AllInputs<T> inputs;
  IndexTensor lists;
};

namespace detail {

/// The error of lists that were given.
template <class T>
Error list_error(const IndexedAttention&, const ListData<T>&, Index) {
  return {};
}
template <class T>
Error list_error(const SmartBirdAttention& op, const ListData<T>& data, Index samples) {
  return selection_error<T>(op, data.inputs, data.lists.view(), samples);
}

template <class S>
Index list_scratch(const IndexedAttention& op, const AttentionShape& shape, Index workers) {
  return op.workspace_bytes<S>(shape_for<IndexedAttention>(shape, kKeysPerRow), workers);
}
template <class S>
Index list_scratch(const SmartBirdAttention& op, const AttentionShape& shape, Index workers) {
  return op.workspace_bytes<S>(shape_for<SmartBirdAttention>(shape, kSketchWidth), workers);
}

inline Index list_backward_scratch(const IndexedAttention& op, const AttentionShape& shape,
                                   Index workers) {
  return op.backward_workspace_bytes<float>(shape_for<IndexedAttention>(shape, kKeysPerRow),
                                            workers);
}
inline Index list_backward_scratch(const SmartBirdAttention& op, const AttentionShape& shape,
                                   Index workers) {
  return op.backward_workspace_bytes<float>(shape_for<SmartBirdAttention>(shape, kSketchWidth),
                                            workers);
}

inline SketchWork sketch_work(const IndexedAttention&) { return {}; }
inline SketchWork sketch_work(const SmartBirdAttention& op) {
  return {kSketchWidth, op.options.causal};
}

/// An entry in float without its runner.
template <class Op>
Entry list_entry(Names names, const Op& op, std::vector<Family> families) {
  Entry entry;
  entry.names = std::move(names);
  entry.families = std::move(families);
  entry.sketch = sketch_work(op);
  entry.causal = op.options.causal;
  entry.attended_pairs = [causal = op.options.causal](const AttentionShape& shape) {
    const SmartBirdAttention listing({.keys_per_row = kKeysPerRow, .causal = causal});
    return shape.query_heads *
           listing.attended_pairs(shape_for<SmartBirdAttention>(shape, kSketchWidth));
  };
  return entry;
}

}  // namespace detail

/// Another choice of keys, to run in turns with.
struct OtherChoice {
  std::string name = {};
  SmartBirdAttention op = {};

  std::function<void(ThreadPool&)> operator()(const AllInputs<float>& in) const {
    if (name.empty()) return {};
    const auto data = std::make_shared<ListData<float>>(op, in);
    return [data, op = op](ThreadPool& pool) {
      op.select(data->inputs.sketch(), data->lists.view(), pool);
    };
  }
};

/// Choices of keys alone, whose output is not touched.
inline Entry select_entry(Names names, const SmartBirdAttention& op, std::vector<Family> families,
                          const OtherChoice& other = {}) {
  names.pass = Pass::select;
  Entry entry = detail::list_entry(std::move(names), op, std::move(families));
  entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
  entry.other = other.name;
  entry.f32 = {
      [op, other](const AllInputs<float>& in, const View<float>&) {
        const auto data = std::make_shared<ListData<float>>(op, in);
        return Prepared{
            .run =
                [=](ThreadPool& pool) {
                  op.select(data->inputs.sketch(), data->lists.view(), pool);
                },
            .error = [=](Index samples) { return detail::list_error(op, *data, samples); },
            .other = other(in)};
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

/// Forward passes. \param other as ForwardPasses
template <class Op, class Other = NoOther>
Entry list_forward_entry(Names names, const Op& op, std::vector<Family> families,
                         const Other& other = {}) {
  Entry entry = detail::list_entry(std::move(names), op, std::move(families));
  entry.other = other.name;
  const auto runner = [&]<class S = float>(float, S = S{}) {
    const auto prepare = [op, other](const AllInputs<float>& in, const View<float>& out) {
      const auto data = std::make_shared<ListData<float>>(op, in);
      const auto error = [=](const View<const float>& got, Index samples,
                             const Rounding& rounding) {
        if constexpr (std::is_same_v<Op, SmartBirdAttention>) {
          op.select(data->inputs.sketch(), data->lists.view());
        }
        Error sum = detail::list_error(op, *data, samples);
        sum.add(sampled_error<float>(data->inputs, got, samples,
                                     softmax_reference(ListedKeys{data->lists.view()}), rounding));
        return sum;
      };
      Prepared pass = forward_pass<S>(op, data->inputs, out, error);
      pass.other = other(in);
      return pass;
    };
    return Runner<float>{prepare, [op](const AttentionShape& shape, Index workers) {
                           return detail::list_scratch<S>(op, shape, workers);
                         }};
  };
  entry.f32 = runner(float{});
  add_stored_runners(entry, runner);
  return entry;
}

/// Backward passes, or forward and backward ones, which save the lists.
template <class Op>
Entry list_training_entry(Names names, const Op& op, std::vector<Family> families) {
  const bool with_forward = names.pass == Pass::training;
  Entry entry = detail::list_entry(std::move(names), op, std::move(families));
  const auto prepare = [op, with_forward](const AllInputs<float>& in, const View<float>& out) {
    const auto data = std::make_shared<ListData<float>>(op, in);
    const auto work = std::make_shared<Training<float>>(in, out);
    if constexpr (std::is_same_v<Op, SmartBirdAttention>) {
      work->saved.indices = data->lists.view();
    }
    if (!with_forward) op.forward(data->inputs, out, work->saved);
    const auto run = [=](ThreadPool& pool) {
      if (with_forward) op.forward(data->inputs, out, work->saved, pool);
      op.backward(data->inputs, out, work->saved, work->d_out, work->grads, pool);
    };
    return Prepared{
        run, [=](Index samples) {
          const ListedKeys lists{data->lists.view()};
          Error error = detail::list_error(op, *data, samples);
          error.add(sampled_error<float>(data->inputs, out, samples, softmax_reference(lists)));
          error.add(sampled_gradient_error(lists, data->inputs, View<const float>(out), work->saved,
                                           work->d_out, work->grads, samples));
          return error;
        }};
  };
  entry.f32 = {prepare, [op](const AttentionShape& shape, Index workers) {
                 return detail::list_backward_scratch(op, shape, workers);
               }};
  return entry;
}

/// Decoding steps: one query after N tokens.
inline Entry list_decode_entry(Names names, const SmartBirdAttention& op,
                               std::vector<Family> families) {
  names.pass = Pass::decode;
  Entry entry = detail::list_entry(std::move(names), op, std::move(families));
  const auto runner = [&]<class S = float>(float, S = S{}) {
    const auto prepare = [op](const AllInputs<float>& in, const View<float>& out) {
      const auto data = std::make_shared<ListData<float>>(op, in);
      const auto call = std::make_shared<const StoredCall<S, float>>(in, out);
      const auto decoder = std::make_shared<fovea::SmartBirdDecoder<S>>(
          op.decoder<S>({.batch = 1,
                         .query_heads = in.q.heads(),
                         .key_heads = in.k.heads(),
                         .width = in.q.width(),
                         .value_width = in.v.width(),
                         .reserve = in.k.rows(),
                         .sketch_width = in.sketch_k.width()}));
      decoder->append(call->inputs.k, call->inputs.v, in.sketch_k);
      AllInputs<S> query;
      query.q = call->inputs.q;
      query.sketch_q = in.sketch_q;
      Prepared pass;
      pass.run = [=](ThreadPool& pool) {
        decoder->step(query, call->out, {.indices = data->lists.view()}, pool);
      };
      pass.error = [=](Index samples) {
        call->widen();
        Error error = detail::list_error(op, *data, samples);
        error.add(sampled_error<float>(data->inputs, out, samples,
                                       softmax_reference(ListedKeys{data->lists.view()}),
                                       rounding_to<S, float>()));
        return error;
      };
      pass.decoder_bytes = [=] { return decoder->memory_bytes(); };
      return pass;
    };
    return Runner<float>{prepare, [](const AttentionShape&, Index) { return Index{0}; }};
  };
  entry.f32 = runner(float{});
  add_stored_runners(entry, runner);
  return entry;
}

}  // namespace bench
