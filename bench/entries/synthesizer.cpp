// SPDX-License-Identifier: MIT
/// \file
/// Entries of the forms of the Synthesizer, whose weights are drawn. The dense form has x in q.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "bench/entries/operators.hpp"
#include "bench/entries/pass_entry.hpp"
#include "fovea/attention/dense_synthesizer.hpp"
#include "fovea/attention/factorised_synthesizer.hpp"
#include "fovea/attention/random_synthesizer.hpp"

namespace bench {

namespace {

using fovea::DenseSynthesizerAttention;
using fovea::FactorisedSynthesizerAttention;
using fovea::RandomSynthesizerAttention;

/// Columns of R1 and R2.
constexpr Index kRank = 8;

/// Normal numbers, rounded to S.
template <class S>
Stored<S> drawn(std::uint32_t seed, std::uint32_t stream, const Shape& shape, float size = 1) {
  const std::vector<float> numbers =
      gaussians<float>(seed, stream, shape[1] * shape[2] * shape[3], size);
  return Stored<S>(View<const float>(numbers.data(), shape));
}

/// The truth for logits that are the products of q and k, and those of the bias.
template <class T>
RowReference<T> unscaled_row(const AllInputs<T>& in, Index head, Index row) {
  OracleOperator<T> softmax = softmax_of_all<T>(in.q.width());
  softmax.scale = 1;
  return softmax_row(in, softmax, head, row);
}

/// R.
template <class T, class S>
struct RandomTensors {
  RandomTensors(const AllInputs<T>& in, const RandomSynthesizerAttention&)
      : inputs(in), r(drawn<T>(5, 0, {1, in.q.heads(), in.q.rows(), in.q.rows()})) {}

  fovea::RandomSynthesizerInputs<S> of_call(const AllInputs<S>& in) const {
    return {r.view(), in.v};
  }
  RowReference<T> truth(Index head, Index row) const {
    AllInputs<T> logits = inputs;
    logits.bias = r.view();
    logits.q = View<const T>(inputs.q.data(), {1, r.shape[1], r.shape[2], 0});
    return unscaled_row(logits, head, row);
  }

  AllInputs<T> inputs;
  Stored<T> r;
};

/// R1 and R2.
template <class T, class S>
struct FactorTensors {
  FactorTensors(const AllInputs<T>& in, const FactorisedSynthesizerAttention&)
      : inputs(in),
        r1(drawn<S>(5, 0, {1, in.q.heads(), in.q.rows(), kRank})),
        r2(drawn<S>(5, 1, {1, in.v.heads(), in.v.rows(), kRank})) {}

  fovea::FactorisedSynthesizerInputs<S> of_call(const AllInputs<S>& in) const {
    return {r1.view(), r2.view(), in.v};
  }
  RowReference<T> truth(Index head, Index row) const {
    return unscaled_row(AllInputs<T>{.q = wide_r1.view(), .k = wide_r2.view(), .v = inputs.v}, head,
                        row);
  }

  AllInputs<T> inputs;
  Stored<S> r1, r2;
  Stored<T> wide_r1{std::as_const(r1).view()}, wide_r2{std::as_const(r2).view()};
};

/// The network of the dense form, M = D.
template <class T, class S>
struct NetworkTensors {
  NetworkTensors(const AllInputs<T>& in, const DenseSynthesizerAttention&)
      : inputs(in),
        w1(drawn<T>(6, 0, {1, in.q.heads(), in.q.width(), in.q.width()}, 0.1F)),
        w2(drawn<T>(7, 0, {1, in.v.heads(), in.q.width(), in.q.rows()}, 0.1F)) {}

  fovea::DenseSynthesizerInputs<S> of_call(const AllInputs<S>& in) const {
    fovea::DenseSynthesizerInputs<S> made;
    made.x = in.q;
    made.w1 = w1.view();
    made.w2 = w2.view();
    made.v = in.v;
    return made;
  }
  RowReference<T> truth(Index head, Index row) const {
    fovea_test::OracleRow<T> made;
    made.key_head = head / (inputs.q.heads() / inputs.v.heads());
    std::vector<Unit> hidden;
    for (Index m = 0; m < inputs.q.width(); ++m) hidden.push_back(hidden_unit(head, row, m));
    for (Index j = 0; j < inputs.v.rows(); ++j) {
      double sum = 0;
      double magnitude = 0;
      for (Index m = 0; m < inputs.q.width(); ++m) {
        const Unit& unit = hidden[static_cast<std::size_t>(m)];
        const double weight{w2.view()(0, made.key_head, m, j)};
        sum += unit.value * weight;
        magnitude += unit.magnitude * std::abs(weight);
      }
      made.add(j, sum, magnitude);
    }
    fovea_test::set_weights(made);
    return oracle_out(inputs, made);
  }

  /// A hidden unit, and the sum of the magnitudes that it is computed from.
  struct Unit {
    double value;
    double magnitude;
  };
  Unit hidden_unit(Index head, Index row, Index m) const {
    double sum = 0;
    double magnitude = 0;
    for (Index d = 0; d < inputs.q.width(); ++d) {
      const double term = double{inputs.q(0, head, row, d)} * double{w1.view()(0, head, d, m)};
      sum += term;
      magnitude += std::abs(term);
    }
    return {std::max(sum, 0.0), magnitude};
  }

  AllInputs<T> inputs;
  Stored<T> w1, w2;
};

/// A form, in float.
template <class O, template <class, class> class Tensors>
struct SynthesizerSubject : Subject<O> {
  template <class T, class S>
  using Data = Tensors<T, S>;

  static constexpr bool kInDouble = false;
  static constexpr bool kIn16Bits = std::is_same_v<O, FactorisedSynthesizerAttention>;
#if defined(FOVEA_BENCH_COMPARED_ONLY)
  static constexpr bool kTrains = false;
#endif

  static auto shape(AttentionShape s) {
    if constexpr (std::is_same_v<O, DenseSynthesizerAttention>) {
      return fovea::DenseSynthesizerShape{s.batch, s.query_heads, s.key_heads,   s.queries,
                                          s.keys,  s.width,       s.value_width, s.width};
    } else {
      s.width = kIn16Bits ? kRank : 0;
      return s;
    }
  }
  template <class T, class S>
  static auto inputs(const Tensors<T, S>& data, const AllInputs<S>& in) {
    return data.of_call(in);
  }
  template <class S>
  Error error(const Tensors<float, S>& data, const View<const float>& out, Index samples,
              const Rounding& rounding) const {
    const auto truth = [&](Index head, Index row) { return data.truth(head, row); };
    return sampled_error<float>(out, samples, truth, rounding);
  }
  static void describe(Entry& entry) {
    entry.longest = 8192;  // all pairs are computed, as by full attention, for comparison
    entry.attended_pairs = [](const AttentionShape& s) {
      return s.query_heads * s.queries * s.keys;
    };
    // Of the products of each pair, whose logit is one of `width` numbers.
    const bool is_backward = entry.names.pass == Pass::backward;
    entry.own_flops = [=](const AttentionShape& s) {
      const Index width = shape(s).width;
      const Index products = is_backward ? 3 * width + 2 * s.value_width : width + s.value_width;
      return 2.0 * static_cast<double>(s.query_heads * s.queries) *
             static_cast<double>(s.keys * products);
    };
  }
};

template <class O, template <class, class> class Tensors>
Entry synthesizer_entry(const char* form, const char* label, Pass pass) {
  return pass_entry({"synthesizer", form, label, pass}, SynthesizerSubject<O, Tensors>{},
                    {{.lengths = {4096, 16384}, .heads = 1, .key_heads = 1}});
}

}  // namespace

std::vector<Entry> synthesizer_entries() {
  constexpr auto factors = synthesizer_entry<FactorisedSynthesizerAttention, FactorTensors>;
  constexpr auto network = synthesizer_entry<DenseSynthesizerAttention, NetworkTensors>;
  return {
    factors("factor:8", "Synthesizer, rank 8", Pass::forward),
        network("dense,hidden:64", "Synthesizer, dense", Pass::forward),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
        factors("factor:8", "", Pass::backward), network("dense,hidden:64", "", Pass::backward),
        synthesizer_entry<RandomSynthesizerAttention, RandomTensors>("random", "", Pass::forward),
        synthesizer_entry<RandomSynthesizerAttention, RandomTensors>("random", "", Pass::backward),
#endif
  };
}

}  // namespace bench
