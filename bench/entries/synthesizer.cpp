// SPDX-License-Identifier: MIT
/// \file
/// Entries of the forms of the Synthesizer, on one head: q and k are R1 and R2 of the factorised
/// form, and R is drawn. The dense form has x in q.
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

/// What an entry of one pass is made of, for any form. `Tensors` holds what the form reads beside
/// the inputs, and gives its inputs and gradients.
template <class Op, class Tensors>
Prepared prepared(Pass pass, const AllInputs<float>& in, const View<float>& out) {
  const auto own = std::make_shared<Tensors>(in);
  const Op op;
  if (pass == Pass::forward) {
    return {[=](ThreadPool& pool) { op.forward(own->inputs(in), out, pool); },
            [=](Index samples) {
              return sampled_error<float>(
                  in, out, samples, [own](const AllInputs<float>& all, Index head, Index row) {
                    return own->truth(all, head, row);
                  });
            }};
  }
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

/// The gradients of R1 and R2.
struct FactorTensors {
  explicit FactorTensors(const AllInputs<float>& in)
      : shape(in.q.shape()),
        d_r1(static_cast<std::size_t>(in.q.size())),
        d_r2(static_cast<std::size_t>(in.q.size())) {}
  static fovea::FactorisedSynthesizerInputs<float> inputs(const AllInputs<float>& in) {
    return {in.q, in.k, in.v};
  }
  fovea::FactorisedSynthesizerGrads<float> grads(const View<float>& d_v) {
    return {View<float>(d_r1.data(), shape), View<float>(d_r2.data(), shape), d_v};
  }
  static RowReference<float> truth(const AllInputs<float>& in, Index head, Index row) {
    const double root = std::sqrt(static_cast<double>(in.q.width()));
    return softmax_row(
        in, head, row, [](Index) { return true; }, [=](Index, double z) { return z * root; });
  }

  Shape shape;
  std::vector<float> d_r1;
  std::vector<float> d_r2;
};

/// The network of the dense form, M = D, and its gradients.
struct NetworkTensors {
  explicit NetworkTensors(const AllInputs<float>& in)
      : rows(in.q.rows()),
        width(in.q.width()),
        heads(in.q.heads()),
        w1(gaussians<float>(6, 0, heads * width * width, 0.1F)),
        w2(gaussians<float>(7, 0, heads * width * rows, 0.1F)),
        d_w1(w1.size()),
        d_w2(w2.size()),
        d_x(static_cast<std::size_t>(in.q.size())) {}
  fovea::DenseSynthesizerInputs<float> inputs(const AllInputs<float>& in) const {
    fovea::DenseSynthesizerInputs<float> made;
    made.x = in.q;
    made.w1 = View<const float>(w1.data(), {1, heads, width, width});
    made.w2 = View<const float>(w2.data(), {1, heads, width, rows});
    made.v = in.v;
    return made;
  }
  fovea::DenseSynthesizerGrads<float> grads(const View<float>& d_v) {
    fovea::DenseSynthesizerGrads<float> made;
    made.x = View<float>(d_x.data(), {1, heads, rows, width});
    made.w1 = View<float>(d_w1.data(), {1, heads, width, width});
    made.w2 = View<float>(d_w2.data(), {1, heads, width, rows});
    made.v = d_v;
    return made;
  }
  RowReference<float> truth(const AllInputs<float>& in, Index head, Index row) const {
    const auto own = inputs(in);
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
            sum += hidden[static_cast<std::size_t>(m)] * double{own.w2(0, head, m, j)};
          }
          return sum;
        });
  }

  Index rows;
  Index width;
  Index heads;
  std::vector<float> w1;
  std::vector<float> w2;
  std::vector<float> d_w1;
  std::vector<float> d_w2;
  std::vector<float> d_x;
};

template <class Op, class Tensors, class BytesOf>
Entry synthesizer_entry(const char* form, Pass pass, const BytesOf& bytes_of) {
  Entry entry;
  entry.names = {"synthesizer", form, "", pass};
  entry.families = {{.lengths = {4096, 16384}, .heads = 1, .key_heads = 1}};
  entry.visible_pairs = [](const AttentionShape& s) { return s.query_heads * s.queries * s.keys; };
  entry.f32 = {[=](const AllInputs<float>& in, const View<float>& out) {
                 return prepared<Op, Tensors>(pass, in, out);
               },
               [=](const AttentionShape& s, Index workers) {
                 return bytes_of(Op{}, s, pass == Pass::backward, workers);
               }};
  return entry;
}

}  // namespace

std::vector<Entry> synthesizer_entries() {
  const auto bytes = [](const auto& op, const AttentionShape& s, bool backward, Index workers) {
    return backward ? op.template backward_workspace_bytes<float>(s, workers)
                    : op.template workspace_bytes<float>(s, workers);
  };
  const auto dense_bytes = [bytes](const auto& op, const AttentionShape& s, bool backward,
                                   Index workers) {
    const fovea::DenseSynthesizerShape shape{s.batch, s.query_heads, s.key_heads,   s.queries,
                                             s.keys,  s.width,       s.value_width, s.width};
    return backward ? op.template backward_workspace_bytes<float>(shape, workers)
                    : op.template workspace_bytes<float>(shape, workers);
  };
  std::vector<Entry> all;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    all.push_back(
        synthesizer_entry<RandomSynthesizerAttention, RandomTensors>("random", pass, bytes));
    all.push_back(
        synthesizer_entry<FactorisedSynthesizerAttention, FactorTensors>("factor:64", pass, bytes));
    all.push_back(synthesizer_entry<DenseSynthesizerAttention, NetworkTensors>("dense,hidden:64",
                                                                               pass, dense_bytes));
  }
  return all;
}

}  // namespace bench
