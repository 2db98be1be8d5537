// SPDX-License-Identifier: MIT
/// \file
/// Entries of Performer attention, in turns with linear attention of as many features.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "bench/entries/far_families.hpp"
#include "bench/entries/operators.hpp"
#include "bench/entries/softmax_entry.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/performer.hpp"

namespace bench {

namespace {

using fovea::PerformerAttention;

/// As many random features as a head is wide.
template <class T>
struct PerformerData {
  explicit PerformerData(const AllInputs<T>& in)
      : projection(static_cast<std::size_t>(in.q.width() * in.q.width())), inputs(in) {
    const View<T> to(projection.data(), {1, 1, in.q.width(), in.q.width()});
    fovea::draw_projection(1, to);
    inputs.projection = to;
  }
  PerformerData(const PerformerData&) = delete;
  PerformerData& operator=(const PerformerData&) = delete;

  std::vector<T> projection;
  AllInputs<T> inputs;
};

/// The logits of the map for a row of q or k, and the sums of the magnitudes of their terms.
template <class T>
struct MapLogits {
  MapLogits(const View<const T>& x, const View<const T>& projection, Index head, Index row,
            bool is_key) {
    using W = Wide<T>;
    const W root = std::sqrt(std::sqrt(static_cast<W>(x.width())));
    for (Index r = 0; r < projection.rows(); ++r) {
      W sum = 0;
      W magnitude = 0;
      for (Index c = 0; c < x.width(); ++c) {
        const W xh = W{x(0, head, row, c)} / root;
        const W product = projection(0, 0, r, c) * xh;
        sum += product - (is_key ? xh * xh / 2 : 0);
        magnitude += std::abs(product) + (is_key ? xh * xh / 2 : 0);
      }
      logits.push_back(sum);
      size = std::max(size, magnitude);
    }
  }
  std::vector<Wide<T>> logits;  // [R]
  Wide<T> size = 0;
};

/// Compares `samples` rows of each head of `out` with the truth, a softmax over keys and features.
/// \param times times(key): how often a key is there
template <class T, class Times>
Error performer_error(const AllInputs<T>& in, bool causal, const View<const T>& out, Index samples,
                      const Times& times) {
  using W = Wide<T>;
  constexpr double u = static_cast<double>(std::numeric_limits<T>::epsilon()) / 2;
  Error error;
  for (Index head = 0; head < out.heads(); ++head) {
    const Index key_head = head / (in.q.heads() / in.k.heads());
    std::vector<MapLogits<T>> keys;
    for (Index j = 0; j < in.k.rows(); ++j) {
      keys.emplace_back(in.k, in.projection, key_head, j, true);
    }
    const Index count = std::min(samples, in.q.rows());
    for (Index s = 0; s < count; ++s) {
      const Index row = sampled_row(s, count, head, in.q.rows());
      const MapLogits<T> q(in.q, in.projection, head, row, false);
      const Index end = causal ? row + in.k.rows() - in.q.rows() + 1 : in.k.rows();
      std::vector<W> sums(static_cast<std::size_t>(out.width()));
      std::vector<W> sizes(sums.size());
      W total = 0;
      W most = 0;
      for (Index j = 0; j < end; ++j) {
        const MapLogits<T>& key = keys[static_cast<std::size_t>(j)];
        W weight = 0;
        for (std::size_t r = 0; r < q.logits.size(); ++r) {
          weight += std::exp(q.logits[r] + key.logits[r]);
        }
        weight *= static_cast<W>(times(j));
        total += weight;
        most = std::max(most, q.size + key.size);
        for (std::size_t c = 0; c < sums.size(); ++c) {
          const W v = in.v(0, key_head, j, static_cast<Index>(c));
          sums[c] += weight * v;
          sizes[c] += weight * std::abs(v);
        }
      }
      for (std::size_t c = 0; c < sums.size(); ++c) {
        const W got = out(0, head, row, static_cast<Index>(c));
        error.add(static_cast<double>(std::abs(got - sums[c] / total)),
                  u * static_cast<double>(sizes[c] / total * (1 + most)));
      }
    }
  }
  return error;
}

/// The same where every key is there once.
template <class T>
Error performer_error(const AllInputs<T>& in, bool causal, const View<const T>& out,
                      Index samples) {
  return performer_error<T>(in, causal, out, samples, [](Index) { return 1; });
}

/// Flops of the products with the projection and with the states. \param tokens that are added
double performer_flops(const AttentionShape& shape, Index tokens) {
  return 2.0 * static_cast<double>(shape.batch) *
         static_cast<double>(shape.query_heads * shape.queries + shape.key_heads * tokens) *
         static_cast<double>(shape.width * (shape.width + shape.value_width));
}

/// A decoder that has some tokens; `step` adds one, the next of them over and over.
template <class T>
struct PerformerDecoding {
  explicit PerformerDecoding(const AllInputs<T>& in)
      : data(in),
        decoder(PerformerAttention({.causal = true})
                    .template decoder<T>({.batch = 1,
                                          .query_heads = in.q.heads(),
                                          .key_heads = in.k.heads(),
                                          .width = in.q.width(),
                                          .value_width = in.v.width(),
                                          .features = in.q.width()})) {
    decoder.append(in.k, in.v, data.inputs.projection);
  }

  void step(const View<T>& out, ThreadPool& pool) {
    const Index row = decoder.length() % data.inputs.k.rows();
    const auto token = [&](const View<const T>& x) {
      return View<const T>(&x(0, 0, row, 0), {1, x.heads(), 1, x.width()}, x.strides());
    };
    AllInputs<T> one = data.inputs;
    one.k = token(one.k);
    one.v = token(one.v);
    decoder.step(one, out, pool);
  }

  Error error(const View<const T>& out) const {
    const Index rows = data.inputs.k.rows();
    return performer_error<T>(data.inputs, true, out, 1, [&](Index key) {
      return decoder.length() / rows + (key < decoder.length() % rows ? 1 : 0);
    });
  }

  PerformerData<T> data;
  fovea::LinearDecoder<PerformerAttention, T> decoder;
};

/// Decoding steps, each with a new token.
Entry performer_decode_entry(Names names, std::vector<Family> families) {
  names.pass = Pass::decode;
  const auto runner = []<class T>(T) {
    const auto prepare = [](const AllInputs<T>& in, const View<T>& out) {
      const auto work = std::make_shared<PerformerDecoding<T>>(in);
      return Prepared{[=](ThreadPool& pool) { work->step(out, pool); },
                      [=](Index) { return work->error(out); },
                      [=] { return work->decoder.memory_bytes(); }};
    };
    return Runner<T>{prepare, [](const AttentionShape&, Index) { return Index{0}; }};
  };
  Entry entry;
  entry.names = std::move(names);
  entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
  entry.families = std::move(families);
  entry.f32 = runner(float{});
  entry.f64 = double_runner(runner);
  entry.own_flops = [](const AttentionShape& shape) { return performer_flops(shape, 1); };
  return entry;
}

Entry performer_entry(Names names, bool causal, std::vector<Family> families) {
  const PerformerAttention op({.causal = causal});
  const bool is_forward = names.pass != Pass::backward;
  const bool is_backward = names.pass != Pass::forward;
  const auto runner = [&]<class T>(T) {
    const auto prepare = [=](const AllInputs<T>& in, const View<T>& out) {
      const auto data = std::make_shared<const PerformerData<T>>(in);
      const auto forward = [=](ThreadPool& pool) { op.forward(data->inputs, out, pool); };
      if (!is_backward) {
        const fovea::LinearAttention<fovea::EluPlusOne> linear({.causal = op.options.causal});
        const auto to = std::make_shared<std::vector<T>>(static_cast<std::size_t>(out.size()));
        Prepared pass;
        pass.run = forward;
        pass.error = [=](Index samples) {
          return performer_error<T>(data->inputs, op.options.causal, out, samples);
        };
        pass.other = [=](ThreadPool& pool) {
          linear.forward(data->inputs, View<T>(to->data(), out.shape()), pool);
        };
        return pass;
      }
      const auto work = std::make_shared<Training<T>>(data->inputs, out);
      work->lse_data = {};
      work->saved = {};
      Prepared pass;
      pass.run = [=](ThreadPool& pool) {
        if (is_forward) op.forward(data->inputs, out, pool);
        op.backward(data->inputs, out, work->saved, work->d_out, work->grads, pool);
      };
      if (is_forward) {
        pass.error = [=](Index samples) {
          return performer_error<T>(data->inputs, op.options.causal, out, samples);
        };
      }
      pass.other = forward;
      return pass;
    };
    return Runner<T>{prepare, [op, is_backward](const AttentionShape& shape, Index workers) {
                       const auto sizes = shape_for<PerformerAttention>(shape, shape.width);
                       return is_backward ? op.backward_workspace_bytes<T>(sizes, workers)
                                          : op.workspace_bytes<T>(sizes, workers);
                     }};
  };
  Entry entry;
  entry.names = std::move(names);
  entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
  entry.families = std::move(families);
  entry.causal = causal;
  entry.other = is_backward ? "forward" : "linear attention";
  entry.f32 = runner(float{});
  entry.f64 = double_runner(runner);
  entry.own_flops = [=](const AttentionShape& shape) {
    return ((is_backward ? 3 : 0) + (is_forward ? 1 : 0)) * performer_flops(shape, shape.keys);
  };
  return entry;
}

}  // namespace

std::vector<Entry> performer_entries() {
  // clang-format off
  return {
      performer_entry({"performer", "features:D", "performer"}, false, far_families()),
      performer_entry({"performer", "causal,features:D", "performer, causal"}, true, far_families()),
      performer_entry({"performer", "causal,features:D", "performer, training", Pass::training}, true, {}),
      performer_decode_entry({"performer", "causal,features:D", "performer, decoding"}, far_decode_families()),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      performer_entry({"performer", "features:D", "", Pass::backward}, false, far_backward_families()),
      performer_entry({"performer", "causal,features:D", "", Pass::backward}, true, far_backward_families()),
#endif
  };
  // clang-format on
}

}  // namespace bench
