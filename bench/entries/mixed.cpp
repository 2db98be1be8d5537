// SPDX-License-Identifier: MIT
/// \file
/// Entries of the operators whose keys are mixtures of tokens: Linformer and Nystroem attention.
#include <cmath>
#include <memory>
#include <vector>

#include "bench/entries/operators.hpp"
#include "bench/entries/softmax_entry.hpp"
#include "fovea/attention/linformer.hpp"
#include "fovea/attention/nystroem.hpp"

namespace bench {

namespace {

using fovea::LinformerAttention;
using fovea::NystroemAttention;

constexpr Index kProjected = 256;  // P
constexpr Index kLandmarks = 64;   // m

/// Tensors of one call, and memory for training.
template <class T>
struct MixedData {
  explicit MixedData(const AllInputs<T>& in) : inputs(in) {
    const Index keys = in.k.rows();
    const auto size = static_cast<T>(1 / std::sqrt(static_cast<double>(keys)));
    for (std::vector<T>* x : {&e, &f}) {
      *x = gaussians<T>(x == &e ? 4 : 5, 0, kProjected * keys);
      for (T& element : *x) element *= size;
    }
    inputs.key_projection = View<const T>(e.data(), {1, 1, kProjected, keys});
    inputs.value_projection = View<const T>(f.data(), {1, 1, kProjected, keys});
  }

  std::vector<T> e, f;
  AllInputs<T> inputs;
};

/// P keys or values of a head, rounded from sums in a wider type.
template <class T>
void project(const View<const T>& e, const View<const T>& x, Index head, T* to) {
  std::vector<Wide<T>> row(static_cast<std::size_t>(x.width()));
  for (Index p = 0; p < e.rows(); ++p) {
    std::fill(row.begin(), row.end(), Wide<T>{0});
    for (Index j = 0; j < x.rows(); ++j) {
      const Wide<T> weight = e(0, 0, p, j);
      for (Index c = 0; c < x.width(); ++c) {
        row[static_cast<std::size_t>(c)] += weight * static_cast<Wide<T>>(x(0, head, j, c));
      }
    }
    for (Index c = 0; c < x.width(); ++c) {
      to[p * x.width() + c] = static_cast<T>(row[static_cast<std::size_t>(c)]);
    }
  }
}

/// How far out is from softmax attention over the projected keys and values.
template <class T>
Error linformer_error(const MixedData<T>& data, const View<T>& out, Index samples) {
  const AllInputs<T>& in = data.inputs;
  const Index heads = in.k.heads();
  std::vector<T> keys(static_cast<std::size_t>(heads * kProjected * in.k.width()));
  std::vector<T> values(static_cast<std::size_t>(heads * kProjected * in.v.width()));
  for (Index h = 0; h < heads; ++h) {
    project(in.key_projection, in.k, h, keys.data() + h * kProjected * in.k.width());
    project(in.value_projection, in.v, h, values.data() + h * kProjected * in.v.width());
  }
  AllInputs<T> projected = in;
  projected.k = View<const T>(keys.data(), {1, heads, kProjected, in.k.width()});
  projected.v = View<const T>(values.data(), {1, heads, kProjected, in.v.width()});
  return sampled_error<T>(projected, out, samples,
                          []<class S>(const AllInputs<S>& of, Index head, Index row) {
                            return softmax_row(of, head, row, [](Index) { return true; });
                          });
}

/// A matrix in a wider type.
template <class T>
struct WideMatrix {
  WideMatrix(Index r, Index c) : rows(r), columns(c), at(static_cast<std::size_t>(r * c)) {}
  Wide<T>& operator()(Index i, Index j) { return at[static_cast<std::size_t>(i * columns + j)]; }

  Index rows, columns;
  std::vector<Wide<T>> at;
};

/// a b
template <class T>
WideMatrix<T> product(WideMatrix<T>& a, WideMatrix<T>& b) {
  WideMatrix<T> to(a.rows, b.columns);
  for (Index i = 0; i < a.rows; ++i) {
    for (Index k = 0; k < a.columns; ++k) {
      for (Index j = 0; j < b.columns; ++j) to(i, j) += a(i, k) * b(k, j);
    }
  }
  return to;
}
/// softmax(a b^T / sqrt(D))
template <class T>
WideMatrix<T> weights(WideMatrix<T>& a, WideMatrix<T>& b) {
  WideMatrix<T> to(a.rows, b.rows);
  const Wide<T> scale = 1 / std::sqrt(static_cast<Wide<T>>(a.columns));
  for (Index i = 0; i < a.rows; ++i) {
    Wide<T> sum = 0;
    for (Index j = 0; j < b.rows; ++j) {
      Wide<T> logit = 0;
      for (Index c = 0; c < a.columns; ++c) logit += a(i, c) * b(j, c);
      to(i, j) = std::exp(logit * scale);  // of data whose logits are small
      sum += to(i, j);
    }
    for (Index j = 0; j < b.rows; ++j) to(i, j) /= sum;
  }
  return to;
}
/// Means of segments of that many rows of a head.
template <class T>
WideMatrix<T> rows_of_head(const View<const T>& x, Index head, Index segment) {
  WideMatrix<T> to(x.rows() / segment, x.width());
  for (Index i = 0; i < x.rows(); ++i) {
    for (Index c = 0; c < x.width(); ++c) {
      to(i / segment, c) += static_cast<Wide<T>>(x(0, head, i, c)) / static_cast<Wide<T>>(segment);
    }
  }
  return to;
}

/// How far out is from the rows' attention to the landmarks of keys, whose values are Z W, in units
/// of |Z| |W|.
template <class T>
Error landmark_error(const MixedData<T>& data, const View<T>& out, Index samples) {
  const AllInputs<T>& in = data.inputs;
  const Index heads = in.q.heads();
  const Index m = kLandmarks;
  std::vector<T> keys, values, sizes;
  for (Index h = 0; h < heads; ++h) {
    const Index key_head = h / (heads / in.k.heads());
    WideMatrix<T> q_means = rows_of_head(in.q, h, in.q.rows() / m);
    WideMatrix<T> k_means = rows_of_head(in.k, key_head, in.k.rows() / m);
    WideMatrix<T> k = rows_of_head(in.k, key_head, 1);
    WideMatrix<T> v = rows_of_head(in.v, key_head, 1);
    WideMatrix<T> a = weights(q_means, k_means);
    Wide<T> norm = 0;
    for (Index j = 0; j < m; ++j) {
      Wide<T> sum = 0;
      for (Index i = 0; i < m; ++i) sum += a(i, j);
      norm = std::max(norm, sum);
    }
    WideMatrix<T> z(m, m);
    for (Index i = 0; i < m; ++i) {
      for (Index j = 0; j < m; ++j) z(i, j) = a(j, i) / norm;
    }
    for (int step = 0; step < 6; ++step) {
      WideMatrix<T> p = product(a, z);
      WideMatrix<T> x = p;
      for (const int c : {7, 15, 13}) {
        for (Wide<T>& element : x.at) element = -element;
        for (Index i = 0; i < m; ++i) x(i, i) += c;
        x = product(c == 13 ? z : p, x);
      }
      for (Wide<T>& element : x.at) element /= 4;
      z = x;
    }
    WideMatrix<T> over_keys = weights(q_means, k);
    WideMatrix<T> w = product(over_keys, v);
    WideMatrix<T> u = product(z, w);
    for (const Wide<T> x : k_means.at) keys.push_back(static_cast<T>(x));
    for (const Wide<T> x : u.at) values.push_back(static_cast<T>(x));
    for (WideMatrix<T>* x : {&z, &w}) {
      for (Wide<T>& element : x->at) element = std::abs(element);
    }
    for (const Wide<T> x : product(z, w).at) sizes.push_back(static_cast<T>(x));
  }
  AllInputs<T> marks = in;
  marks.k = View<const T>(keys.data(), {1, heads, m, in.k.width()});
  marks.v = View<const T>(values.data(), {1, heads, m, in.v.width()});
  AllInputs<T> magnitudes = marks;
  magnitudes.v = View<const T>(sizes.data(), {1, heads, m, in.v.width()});
  return sampled_error<T>(marks, out, samples, [&](const AllInputs<T>& of, Index head, Index row) {
    const auto all = [](Index) { return true; };
    RowReference<T> truth = softmax_row(of, head, row, all);
    truth.unit = softmax_row(magnitudes, head, row, all).unit;
    return truth;
  });
}

/// The passes of an operator, with what its backward pass reads kept.
template <class T>
struct MixedTraining : Training<T> {
  MixedTraining(const AllInputs<T>& in, const View<T>& out)
      : Training<T>(in, out),
        keys(Training<T>::size(in.k.heads() * kProjected * in.k.width())),
        values(Training<T>::size(in.k.heads() * kProjected * in.v.width())),
        marks(Training<T>::size(in.q.heads() * kLandmarks * in.v.width())),
        mark_lse(Training<T>::size(in.q.heads() * kLandmarks)),
        d_e(Training<T>::size(kProjected * in.k.rows())),
        d_f(Training<T>::size(kProjected * in.k.rows())) {
    AllSaved<T>& kept = this->saved;
    kept.projected_keys = {keys.data(), {1, in.k.heads(), kProjected, in.k.width()}};
    kept.projected_values = {values.data(), {1, in.k.heads(), kProjected, in.v.width()}};
    kept.landmark_values = {marks.data(), {1, in.q.heads(), kLandmarks, in.v.width()}};
    kept.landmark_lse = {mark_lse.data(), {1, in.q.heads(), kLandmarks, 1}};
    this->grads.key_projection = {d_e.data(), {1, 1, kProjected, in.k.rows()}};
    this->grads.value_projection = {d_f.data(), {1, 1, kProjected, in.k.rows()}};
  }

  std::vector<T> keys, values, marks, mark_lse, d_e, d_f;
};

/// \param rows the pairs of a row of q, and of a row of k
/// \param error error(data, out, samples); of forward passes
template <class Op, class F>
Entry mixed_entry(Names names, const Op& op, Index rows, std::vector<Family> families,
                  const F& error) {
  const bool is_forward = names.pass != Pass::backward;
  const bool is_backward = names.pass != Pass::forward;
  const auto runner = [&]<class T>(T) {
    const auto prepare = [=](const AllInputs<T>& in, const View<T>& out) {
      const auto data = std::make_shared<MixedData<T>>(in);
      if (!is_backward) {
        return Prepared{[=](ThreadPool& pool) { op.forward(data->inputs, out, pool); },
                        [=](Index samples) { return error(*data, out, samples); }};
      }
      const auto work = std::make_shared<MixedTraining<T>>(in, out);
      op.forward(data->inputs, out, work->saved);
      Prepared pass;
      pass.run = [=](ThreadPool& pool) {
        if (is_forward) op.forward(data->inputs, out, work->saved, pool);
        op.backward(data->inputs, out, work->saved, work->d_out, work->grads, pool);
      };
      if (is_forward) pass.error = [=](Index samples) { return error(*data, out, samples); };
      return pass;
    };
    return Runner<T>{prepare, [op, is_backward](const AttentionShape& shape, Index workers) {
                       const auto own = shape_for<Op>(shape, kProjected);
                       return is_backward ? op.template backward_workspace_bytes<T>(own, workers)
                                          : op.template workspace_bytes<T>(own, workers);
                     }};
  };
  Entry entry{std::move(names),
              [rows](const AttentionShape& s) { return s.query_heads * s.queries * rows; },
              runner(float{}), double_runner(runner), std::move(families)};
  constexpr double of_backward = std::is_same_v<Op, LinformerAttention> ? 2.25 : 2.5;
  entry.own_flops = [=](const AttentionShape& s) {
    const auto tokens = static_cast<double>(s.query_heads * s.queries + s.key_heads * s.keys);
    return ((is_backward ? of_backward : 0) + (is_forward ? 1 : 0)) * 2 *
           static_cast<double>(rows) * tokens * static_cast<double>(s.width + s.value_width);
  };
  if constexpr (std::is_same_v<Op, NystroemAttention>) {
    entry.obstacle = [](const AttentionShape& s) -> std::string {
      const bool divides = s.queries % kLandmarks == 0 && s.keys % kLandmarks == 0;
      return divides ? "" : "N is not a multiple of 64";
    };
  }
  return entry;
}

NystroemAttention nystroem() {
  fovea::NystroemOptions options;
  options.landmarks = kLandmarks;
  return NystroemAttention(options);
}

std::vector<Family> mixed_families() {
  return {{.lengths = {4096, 16384}},
          {.lengths = {16384}, .heads = 1, .key_heads = 1},
          {.scalar = Scalar::f64, .lengths = {4096}},
          {.threads = 2, .lengths = {16384}}};
}

}  // namespace

std::vector<Entry> mixed_entries() {
  const auto error = []<class T>(const MixedData<T>& data, const View<T>& out, Index samples) {
    return linformer_error(data, out, samples);
  };
  const auto nystroem_error = []<class T>(const MixedData<T>& data, const View<T>& out,
                                          Index samples) {
    return landmark_error(data, out, samples);
  };
  // clang-format off
  return {
      mixed_entry({"linformer", "256", "Linformer, 256"}, LinformerAttention{}, kProjected, mixed_families(), error),
      mixed_entry({"nystroem", "64", "Nystroem, 64"}, nystroem(), kLandmarks, mixed_families(), nystroem_error),
      mixed_entry({"linformer", "256", "Linformer, training", Pass::training}, LinformerAttention{}, kProjected, {}, error),
      mixed_entry({"nystroem", "64", "Nystroem, training", Pass::training}, nystroem(), kLandmarks, {}, nystroem_error),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      mixed_entry({"linformer", "256", "", Pass::backward}, LinformerAttention{}, kProjected, mixed_families(), error),
      mixed_entry({"nystroem", "64", "", Pass::backward}, nystroem(), kLandmarks, mixed_families(), nystroem_error),
#endif
  };
  // clang-format on
}

}  // namespace bench
