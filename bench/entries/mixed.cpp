// SPDX-License-Identifier: MIT
/// \file
/// Entries of the operators whose keys are mixtures of tokens: Linformer and Nystroem attention.
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/entries/operators.hpp"
#include "bench/entries/pass_entry.hpp"
#include "fovea/attention/linformer.hpp"
#include "fovea/attention/nystroem.hpp"
#include "tests/support/oracle/linformer.hpp"
#include "tests/support/oracle/nystroem.hpp"

namespace bench {

namespace {

using fovea::LinformerAttention;
using fovea::NystroemAttention;
using fovea_test::OracleMatrix;

constexpr Index kProjected = 256;  // P
constexpr Index kLandmarks = 64;   // m

/// The tensors of one call.
template <class T>
struct MixedData : PlainData<T> {
  template <class Op>
  MixedData(const AllInputs<T>& in, const Op& op) : PlainData<T>(in, op) {
    const Index keys = in.k.rows();
    const auto size = static_cast<T>(1 / std::sqrt(static_cast<double>(keys)));
    const auto projection = [&](std::uint64_t seed) {
      std::vector<T> x = gaussians<T>(seed, 0, kProjected * keys);
      for (T& element : x) element *= size;
      return this->keep({1, 1, kProjected, keys}, std::move(x));
    };
    this->inputs.key_projection = projection(4);
    this->inputs.value_projection = projection(5);
  }
};

/// Appends the P keys or values of a head, rounded from sums in a wider type.
template <class T>
void project(const View<const T>& e, const View<const T>& x, Index head, std::vector<T>& to) {
  const fovea_test::detail::OracleProjected<T> sums(e, x, 0, head, x.rows());
  for (const auto& sum : sums.at) to.push_back(static_cast<T>(sum.value));
}

/// How far out is from softmax attention over the projected keys and values.
template <class T>
Error mixed_error(const LinformerAttention&, const AllInputs<T>& in, const View<const T>& out,
                  Index samples) {
  const Index heads = in.k.heads();
  std::vector<T> keys, values;
  for (Index h = 0; h < heads; ++h) {
    project(in.key_projection, in.k, h, keys);
    project(in.value_projection, in.v, h, values);
  }
  AllInputs<T> projected = in;
  projected.k = View<const T>(keys.data(), {1, heads, kProjected, in.k.width()});
  projected.v = View<const T>(values.data(), {1, heads, kProjected, in.v.width()});
  return softmax_error(softmax_of_all<T>(in.q.width()), projected, out, samples);
}

/// The rows of a head as a matrix of the oracle.
template <class T>
OracleMatrix<Wide<T>> matrix_of(const View<const T>& x, Index head) {
  OracleMatrix<Wide<T>> to(x.rows(), x.width());
  for (Index i = 0; i < x.rows(); ++i) {
    for (Index c = 0; c < x.width(); ++c) to(i, c) = static_cast<Wide<T>>(x(0, head, i, c));
  }
  return to;
}

/// How far out is from the rows' attention to the landmarks of keys, whose values are Z W, in units
/// of |Z| |W|.
template <class T>
Error mixed_error(const NystroemAttention&, const AllInputs<T>& in, const View<const T>& out,
                  Index samples) {
  const Index heads = in.q.heads();
  const Index m = kLandmarks;
  using Matrix = OracleMatrix<Wide<T>>;
  const Wide<T> scale = 1 / std::sqrt(static_cast<Wide<T>>(in.q.width()));
  const auto exact = [](const Matrix&, const std::vector<Wide<T>>&) {};
  std::vector<T> keys, values, sizes;
  for (Index h = 0; h < heads; ++h) {
    const Index key_head = h / (heads / in.k.heads());
    const Matrix k = matrix_of(in.k, key_head);
    const Matrix q_means = fovea_test::landmarks_of(matrix_of(in.q, h), m);
    const Matrix k_means = fovea_test::landmarks_of(k, m);
    const Matrix a = softmax_of(q_means, k_means, scale, exact);
    Matrix z = fovea_test::iterated_inverse<Wide<T>>(a, fovea_test::column_norm(a), 6, exact);
    Matrix w = product(softmax_of(q_means, k, scale, exact), matrix_of(in.v, key_head));
    for (const Wide<T> x : k_means.at) keys.push_back(static_cast<T>(x));
    for (const Wide<T> x : product(z, w).at) values.push_back(static_cast<T>(x));
    for (Matrix* x : {&z, &w}) {
      for (Wide<T>& element : x->at) element = std::abs(element);
    }
    for (const Wide<T> x : product(z, w).at) sizes.push_back(static_cast<T>(x));
  }
  AllInputs<T> marks = in;
  marks.k = View<const T>(keys.data(), {1, heads, m, in.k.width()});
  marks.v = View<const T>(values.data(), {1, heads, m, in.v.width()});
  AllInputs<T> magnitudes = marks;
  magnitudes.v = View<const T>(sizes.data(), {1, heads, m, in.v.width()});
  const auto softmax = softmax_of_all<T>(in.q.width());
  return sampled_error<T>(out, samples, [&](Index head, Index row) {
    RowReference<T> truth = softmax_row(marks, softmax, head, row);
    truth.gauge = softmax_row(magnitudes, softmax, head, row).gauge;
    return truth;
  });
}

/// One of both operators.
template <class O>
struct MixedSubject : Subject<O> {
  template <class T, class S>
  using Data = MixedData<T>;

  static constexpr bool kIsLinformer = std::is_same_v<O, LinformerAttention>;

  auto shape(const AttentionShape& s) const { return shape_for<O>(s, kProjected); }
  template <class T>
  Shape saved_shape(std::string_view name, const AllInputs<T>& in) const {
    if (name == "projected_keys") return {1, in.k.heads(), kProjected, in.k.width()};
    if (name == "projected_values") return {1, in.k.heads(), kProjected, in.v.width()};
    if (name == "landmark_values") return {1, in.q.heads(), kLandmarks, in.v.width()};
    return {1, in.q.heads(), name == "landmark_lse" ? kLandmarks : in.q.rows(), 1};
  }
  template <class T>
  Error error(const MixedData<T>& data, const View<const T>& out, Index samples,
              const Rounding&) const {
    return mixed_error(this->op, data.inputs, out, samples);
  }
  void describe(Entry& entry) const {
    // The pairs of a row of q, and of a row of k.
    constexpr Index rows = kIsLinformer ? kProjected : kLandmarks;
    entry.attended_pairs = [](const AttentionShape& s) { return s.query_heads * s.queries * rows; };
    const double passes = passes_of_forward(entry.names.pass, kIsLinformer ? 2.25 : 2.5);
    entry.own_flops = [passes](const AttentionShape& s) {
      const auto tokens = static_cast<double>(s.query_heads * s.queries + s.key_heads * s.keys);
      return passes * 2 * static_cast<double>(rows) * tokens *
             static_cast<double>(s.width + s.value_width);
    };
    if (kIsLinformer) return;
    entry.obstacle = [](const AttentionShape& s) -> std::string {
      const bool divides = s.queries % kLandmarks == 0 && s.keys % kLandmarks == 0;
      return divides ? "" : "N is not a multiple of 64";
    };
  }
};

template <class Op>
Entry mixed_entry(Names names, const Op& op, std::vector<Family> families) {
  return pass_entry(std::move(names), MixedSubject<Op>{{op}}, std::move(families));
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
  // clang-format off
  return {
      mixed_entry({"linformer", "256", "Linformer, 256"}, LinformerAttention{}, mixed_families()),
      mixed_entry({"nystroem", "64", "Nystroem, 64"}, nystroem(), mixed_families()),
      mixed_entry({"linformer", "256", "Linformer, training", Pass::training}, LinformerAttention{}, {}),
      mixed_entry({"nystroem", "64", "Nystroem, training", Pass::training}, nystroem(), {}),
#if !defined(FOVEA_BENCH_COMPARED_ONLY)
      mixed_entry({"linformer", "256", "", Pass::backward}, LinformerAttention{}, mixed_families()),
      mixed_entry({"nystroem", "64", "", Pass::backward}, nystroem(), mixed_families()),
#endif
  };
  // clang-format on
}

}  // namespace bench
