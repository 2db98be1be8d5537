// SPDX-License-Identifier: MIT
/// \file
/// Entries of the forms of the Synthesizer, whose weights are drawn. The dense form has x in q.
#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "bench/entries/operators.hpp"
#include "bench/io/gaussian.hpp"
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

/// A forward pass of any form. `Tensors` has the form's other tensors, and returns its inputs and
/// gradients. \tparam S of the tensors
template <class Op, class Tensors, class S = float>
Prepared forward_pass_of(const AllInputs<float>& in, const View<float>& out) {
  const auto own = std::make_shared<const Tensors>(in);
  const auto call = std::make_shared<const StoredCall<S, float>>(in, out);
  return {[=](ThreadPool& pool) { Op{}.forward(own->inputs(call->inputs), call->out, pool); },
          [=](Index samples) {
            call->widen();
            return sampled_error<float>(
                in, out, samples,
                [own](const AllInputs<float>& all, Index head, Index row) {
                  return own->truth(all, head, row);
                },
                rounding_to<S, float>());
          }};
}

/// A backward pass.
template <class Op, class Tensors>
Prepared backward_pass(const AllInputs<float>& in, const View<float>& out) {
  const auto own = std::make_shared<Tensors>(in);
  const Op op;
  const auto lse = std::make_shared<std::vector<float>>(in.q.batch() * in.q.heads() * in.q.rows());
  const auto made = std::make_shared<fovea::Workspace>(out.size(), sizeof(float));
  const View<float> kept(made->data<float>(), out.shape());
  const fovea::SoftmaxSaved<float> saved{
      View<float>(lse->data(), {in.q.batch(), in.q.heads(), in.q.rows(), 1})};
  op.forward(own->inputs(in), kept, saved);
  return {[=, keeps = std::pair(lse, made)](ThreadPool& pool) {
            op.backward(own->inputs(in), kept, saved, in.v, own->grads(out), pool);
          },
          {}};
}

/// R, and its gradient.
struct RandomTensors {
  explicit RandomTensors(const AllInputs<float>& in)
      : shape{1, in.q.heads(), in.q.rows(), in.q.rows()},
        r(gaussians<float>(5, 0, shape[1] * shape[2] * shape[3])),
        d_r(r.size()) {}
  fovea::RandomSynthesizerInputs<float> inputs(const AllInputs<float>& in) const {
    return {View<const float>(r.data(), shape), in.v};
  }
  fovea::RandomSynthesizerGrads<float> grads(const View<float>& d_v) {
    return {View<float>(d_r.data(), shape), d_v};
  }
  RowReference<float> truth(const AllInputs<float>& in, Index head, Index row) const {
    const View<const float> logits(r.data(), shape);
    return softmax_row(
        in, head, row, [](Index) { return true; },
        [&](Index j, double) { return double{logits(0, head, row, j)}; });
  }

  Shape shape;
  std::vector<float> r;
  std::vector<float> d_r;
};

/// R1 and R2, of S, and their gradients.
template <class S>
struct FactorTensors {
  explicit FactorTensors(const AllInputs<float>& in)
      : of_queries{1, in.q.heads(), in.q.rows(), kRank},
        of_keys{1, in.v.heads(), in.v.rows(), kRank},
        r1(drawn(0, of_queries)),
        r2(drawn(1, of_keys)),
        d_r1(static_cast<std::size_t>(r1.view().size())),
        d_r2(static_cast<std::size_t>(r2.view().size())) {}
  fovea::FactorisedSynthesizerInputs<S> inputs(const AllInputs<S>& in) const {
    return {r1.view(), r2.view(), in.v};
  }
  fovea::FactorisedSynthesizerGrads<float> grads(const View<float>& d_v) {
    return {View<float>(d_r1.data(), of_queries), View<float>(d_r2.data(), of_keys), d_v};
  }
  RowReference<float> truth(const AllInputs<float>& in, Index head, Index row) const {
    const AllInputs<float> rows{.q = wide_r1.view(), .k = wide_r2.view(), .v = in.v};
    const double root = std::sqrt(static_cast<double>(kRank));
    return softmax_row(
        rows, head, row, [](Index) { return true; }, [=](Index, double z) { return z * root; });
  }

  Shape of_queries, of_keys;
  Stored<S> r1, r2;
  std::vector<float> d_r1, d_r2;

 private:
  static Stored<S> drawn(std::uint32_t stream, const Shape& shape) {
    const std::vector<float> numbers = gaussians<float>(5, stream, shape[1] * shape[2] * shape[3]);
    return Stored<S>(View<const float>(numbers.data(), shape));
  }

  Stored<float> wide_r1{std::as_const(r1).view()}, wide_r2{std::as_const(r2).view()};
};

/// The network of the dense form, M = D, and its gradients.
struct NetworkTensors {
  explicit NetworkTensors(const AllInputs<float>& in)
      : rows(in.q.rows()),
        width(in.q.width()),
        heads(in.q.heads()),
        key_heads(in.v.heads()),
        w1(gaussians<float>(6, 0, heads * width * width, 0.1F)),
        w2(gaussians<float>(7, 0, key_heads * width * rows, 0.1F)),
        d_w1(w1.size()),
        d_w2(w2.size()),
        d_x(static_cast<std::size_t>(in.q.size())) {}
  fovea::DenseSynthesizerInputs<float> inputs(const AllInputs<float>& in) const {
    fovea::DenseSynthesizerInputs<float> made;
    made.x = in.q;
    made.w1 = View<const float>(w1.data(), {1, heads, width, width});
    made.w2 = View<const float>(w2.data(), {1, key_heads, width, rows});
    made.v = in.v;
    return made;
  }
  fovea::DenseSynthesizerGrads<float> grads(const View<float>& d_v) {
    fovea::DenseSynthesizerGrads<float> made;
    made.x = View<float>(d_x.data(), {1, heads, rows, width});
    made.w1 = View<float>(d_w1.data(), {1, heads, width, width});
    made.w2 = View<float>(d_w2.data(), {1, key_heads, width, rows});
    made.v = d_v;
    return made;
  }
  RowReference<float> truth(const AllInputs<float>& in, Index head, Index row) const {
    const auto own = inputs(in);
    const Index key_head = head / (heads / key_heads);
    std::vector<double> hidden;
    for (Index m = 0; m < width; ++m) {
      double sum = 0;
      for (Index d = 0; d < width; ++d) {
        sum += double{in.q(0, head, row, d)} * double{own.w1(0, head, d, m)};
      }
      hidden.push_back(sum < 0 ? 0 : sum);
    }
    return softmax_row(
        in, head, row, [](Index) { return true; },
        [&](Index j, double) {
          double sum = 0;
          for (Index m = 0; m < width; ++m) {
            sum += hidden[static_cast<std::size_t>(m)] * double{own.w2(0, key_head, m, j)};
          }
          return sum;
        });
  }

  Index rows;
  Index width;
  Index heads;
  Index key_heads;
  std::vector<float> w1;
  std::vector<float> w2;
  std::vector<float> d_w1;
  std::vector<float> d_w2;
  std::vector<float> d_x;
};

/// The sizes of a call, those of the network among them.
fovea::DenseSynthesizerShape shape_of_network(const AttentionShape& s) {
  return {s.batch, s.query_heads, s.key_heads, s.queries, s.keys, s.width, s.value_width, s.width};
}
AttentionShape shape_of_factors(AttentionShape s) {
  s.width = kRank;
  return s;
}
AttentionShape shape_of_logits(AttentionShape s) {
  s.width = 0;
  return s;
}

template <class Op, class Tensors, Pass pass, class ShapeFor>
Entry synthesizer_entry(const char* form, const char* label, const ShapeFor& shape_for_call) {
  constexpr bool is_backward = pass == Pass::backward;
  Entry entry;
  entry.names = {"synthesizer", form, label, pass};
  entry.families = {{.lengths = {4096, 16384}, .heads = 1, .key_heads = 1}};
  entry.longest = 8192;  // all pairs are computed, as by full attention, for comparison
  entry.attended_pairs = [](const AttentionShape& s) { return s.query_heads * s.queries * s.keys; };
  // Of the products of each pair, whose logit is one of `width` numbers.
  entry.own_flops = [=](const AttentionShape& s) {
    const Index width = shape_for_call(s).width;
    const Index products = is_backward ? 3 * width + 2 * s.value_width : width + s.value_width;
    return 2.0 * static_cast<double>(s.query_heads * s.queries) *
           static_cast<double>(s.keys * products);
  };
  entry.f32 = {[](const AllInputs<float>& in, const View<float>& out) {
                 if constexpr (is_backward) return backward_pass<Op, Tensors>(in, out);
                 if constexpr (!is_backward) return forward_pass_of<Op, Tensors>(in, out);
               },
               [=](const AttentionShape& s, Index workers) {
                 const auto own = shape_for_call(s);
                 if constexpr (is_backward) {
                   return Op{}.template backward_workspace_bytes<float>(own, workers);
                 } else {
                   return Op{}.template workspace_bytes<float>(own, workers);
                 }
               }};
  return entry;
}

/// Entries of one pass of the forms that fovea_compare shows.
template <Pass pass>
void add_streamed(std::vector<Entry>& to, const char* factors, const char* network) {
  using Factors = FactorisedSynthesizerAttention;
  to.push_back(synthesizer_entry<Factors, FactorTensors<float>, pass>("factor:8", factors,
                                                                      shape_of_factors));
  if constexpr (pass == Pass::forward) {
    add_stored_runners(to.back(), []<class S>(float, S) {
      return Runner<float>{forward_pass_of<Factors, FactorTensors<S>, S>,
                           [](const AttentionShape& s, Index workers) {
                             return Factors{}.workspace_bytes<S>(shape_of_factors(s), workers);
                           }};
    });
  }
  to.push_back(synthesizer_entry<DenseSynthesizerAttention, NetworkTensors, pass>(
      "dense,hidden:64", network, shape_of_network));
}

}  // namespace

std::vector<Entry> synthesizer_entries() {
  std::vector<Entry> all;
  add_streamed<Pass::forward>(all, "Synthesizer, rank 8", "Synthesizer, dense");
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
  add_streamed<Pass::backward>(all, "", "");
  all.push_back(synthesizer_entry<RandomSynthesizerAttention, RandomTensors, Pass::forward>(
      "random", "", shape_of_logits));
  all.push_back(synthesizer_entry<RandomSynthesizerAttention, RandomTensors, Pass::backward>(
      "random", "", shape_of_logits));
#endif
  return all;
}

}  // namespace bench
