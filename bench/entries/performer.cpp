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
  std::vector<std::vector<MapLogits<T>>> keys(static_cast<std::size_t>(in.k.heads()));
  for (Index h = 0; h < in.k.heads(); ++h) {
    for (Index j = 0; j < in.k.rows(); ++j) {
      keys[static_cast<std::size_t>(h)].emplace_back(in.k, in.projection, h, j, true);
    }
  }
  return sampled_error<T>(out, samples, [&](Index head, Index row) {
    fovea_test::OracleRow<T> made;
    made.key_head = head / (in.q.heads() / in.k.heads());
    const MapLogits<T> q(in.q, in.projection, head, row, false);
    const Index end = causal ? row + in.k.rows() - in.q.rows() + 1 : in.k.rows();
    for (Index j = 0; j < end; ++j) {
      const auto& key = keys[static_cast<std::size_t>(made.key_head)][static_cast<std::size_t>(j)];
      Wide<T> weight = 0;  // of all features together
      for (std::size_t r = 0; r < q.logits.size(); ++r) {
        weight += std::exp(q.logits[r] + key.logits[r]);
      }
      weight *= static_cast<Wide<T>>(times(j));
      if (weight > 0) made.add(j, std::log(weight), q.size + key.size);
    }
    fovea_test::set_weights(made);
    return oracle_out(in, made);
  });
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
