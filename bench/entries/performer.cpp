// SPDX-License-Identifier: MIT
/// \file
/// Entries of Performer attention, in turns with linear attention of as many features.
#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "bench/entries/families.hpp"
#include "bench/entries/far_entry.hpp"
#include "bench/entries/operators.hpp"
#include "fovea/attention/linear.hpp"
#include "fovea/attention/performer.hpp"

namespace bench {

namespace {

using fovea::PerformerAttention;

/// As many random features as a head is wide.
template <class T>
struct PerformerData : PlainData<T> {
  PerformerData(const AllInputs<T>& in, const PerformerAttention& op) : PlainData<T>(in, op) {
    const Index width = in.q.width();
    const View<T> to =
        this->keep({1, 1, width, width}, std::vector<T>(static_cast<std::size_t>(width * width)));
    fovea::draw_projection(1, to);
    this->inputs.projection = to;
  }
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

/// Flops of the products with the projection and with the states. \param tokens that are added
double performer_flops(const AttentionShape& shape, Index tokens) {
  return 2.0 * static_cast<double>(shape.batch) *
         static_cast<double>(shape.query_heads * shape.queries + shape.key_heads * tokens) *
         static_cast<double>(shape.width * (shape.width + shape.value_width));
}

struct PerformerSubject : Subject<PerformerAttention> {
  template <class T, class S>
  using Data = PerformerData<T>;

  static constexpr bool kBesideForward = true;

  auto shape(const AttentionShape& s) const { return shape_for<PerformerAttention>(s, s.width); }
  template <class T>
  Error error(const PerformerData<T>& data, const View<const T>& out, Index samples,
              const Rounding& rounding) const {
    return decoded_error(data, data.inputs.k.rows(), out, samples, rounding);
  }
  /// \param tokens of a decoder, which come again and again
  template <class T>
  Error decoded_error(const PerformerData<T>& data, Index tokens, const View<const T>& out,
                      Index samples, const Rounding&) const {
    const Index rows = data.inputs.k.rows();
    return performer_error<T>(data.inputs, op.options.causal, out, samples, [=](Index key) {
      return tokens / rows + (key < tokens % rows ? 1 : 0);
    });
  }
  void describe(Entry& entry) const {
    entry.causal = op.options.causal;
    const bool steps = entry.names.pass == Pass::decode;
    const double passes = passes_of_forward(entry.names.pass, 3);
    entry.own_flops = [=](const AttentionShape& s) {
      return passes * performer_flops(s, steps ? 1 : s.keys);
    };
  }
  fovea::PerformerDecoderShape decoder_shape(const DecoderShape& s) const {
    return decoder_shape_for<PerformerAttention>(s, s.width);
  }
};

/// Decoding steps, each with a new token.
Entry performer_decode_entry(Names names, std::vector<Family> families) {
  return steps_entry<LinearDecoding>(std::move(names),
                                     PerformerSubject{{PerformerAttention({.causal = true})}},
                                     std::move(families));
}

Entry performer_entry(Names names, bool causal, std::vector<Family> families) {
  using Linear = fovea::LinearAttention<fovea::EluPlusOne>;
  const ForwardPasses<Linear> linear{"linear attention", {Linear({.causal = causal})}};
  return pass_entry(std::move(names), PerformerSubject{{PerformerAttention({.causal = causal})}},
                    std::move(families), linear);
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
