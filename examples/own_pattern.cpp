// SPDX-License-Identifier: MIT
/// \file
/// usage: own_pattern [file.svg]     near_pixels.svg if none is given
/// The custom pattern of near_pixels.hpp: forward, backward and decoding, compared with N x N
/// matrices in double; its cost, and its picture.
#include <cstring>
#include <fovea/fovea.hpp>

#include "near_pixels.hpp"
#include "pattern_sheet.hpp"

namespace {

using Tensor = fovea::Tensor4<float>;
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
using fovea::Index;

constexpr Index kHeads = 2, kWidth = 16;

/// One head as a matrix [N, D].
Matrix head_of(const Tensor& x, Index head) {
  using Floats = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
  const Index n = x.dimension(2), d = x.dimension(3);
  return Eigen::Map<const Floats>(x.data() + head * n * d, n, d).cast<double>();
}

/// Of one head, each [N, D].
struct Plain {
  Matrix out, d_q, d_k, d_v;
};

/// Attention and its gradients by definition; a pair that is not allowed has weight 0.
template <class Pattern>
Plain plain_attention(const Pattern& pattern, const Matrix& q, const Matrix& k, const Matrix& v,
                      const Matrix& d_out) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.cols()));
  Matrix weight = (q * k.transpose() * scale).array().exp();  // [N, N]
  for (Index i = 0; i < weight.rows(); ++i) {
    for (Index j = 0; j < weight.cols(); ++j) {
      if (!pattern.allows(i, j)) weight(i, j) = 0;
    }
  }
  weight.array().colwise() /= weight.rowwise().sum().array().eval();
  const Matrix d_weight = d_out * v.transpose();
  const Eigen::VectorXd mean = weight.cwiseProduct(d_weight).rowwise().sum();
  const Matrix d_logit = weight.cwiseProduct(d_weight.colwise() - mean) * scale;
  return {weight * v, d_logit * k, d_logit.transpose() * q, weight.transpose() * d_out};
}

bool close(const Tensor& x, Index head, const Matrix& expected) {
  return (head_of(x, head) - expected).cwiseAbs().maxCoeff() <
         1e-5 * expected.cwiseAbs().maxCoeff();
}

/// Whether decoding token by token has the same bits as one call.
bool decodes(const fovea::SparseAttention& op, const Tensor& q, const Tensor& k, const Tensor& v,
             const Tensor& out) {
  auto decoder = op.decoder<float>(
      {.query_heads = kHeads, .key_heads = kHeads, .width = kWidth, .value_width = kWidth});
  bool same = true;
  Tensor row(1, kHeads, 1, kWidth);
  for (Index i = 0; i < q.dimension(2); ++i) {
    const auto token = [i](const Tensor& x) -> Tensor {
      return x.slice(Eigen::array<Index, 4>{0, 0, i, 0},
                     Eigen::array<Index, 4>{1, kHeads, 1, kWidth});
    };
    const Tensor qi = token(q), ki = token(k), vi = token(v), expected = token(out);
    decoder.step({qi, ki, vi}, row);
    same = same && std::memcmp(row.data(), expected.data(), sizeof(float) * kHeads * kWidth) == 0;
  }
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string file = argc > 1 ? argv[1] : "near_pixels.svg";
  const NearPixels pattern{.width = 32, .radius = 4};
  const Index n = pattern.width * 20;  // an image of 20 rows
  const fovea::SparseAttention op{{.patterns = {pattern}}};

  Tensor q(1, kHeads, n, kWidth), k(1, kHeads, n, kWidth), v(1, kHeads, n, kWidth);
  Tensor out(1, kHeads, n, kWidth), d_out(1, kHeads, n, kWidth);
  std::srand(1);  // of Eigen's setRandom
  for (Tensor* x : {&q, &k, &v, &d_out}) x->setRandom();
  Tensor d_q = q, d_k = k, d_v = v;
  Eigen::Tensor<float, 3, Eigen::RowMajor> lse(1, kHeads, n);
  const fovea::SoftmaxSaved<float> saved{fovea::row_view(lse)};
  fovea::ThreadPool pool;
  op.forward({q, k, v}, out, saved, pool);
  op.backward({q, k, v}, out, saved, d_out, {.q = d_q, .k = d_k, .v = d_v}, pool);

  bool forward = true, backward = true;
  for (Index h = 0; h < kHeads; ++h) {
    const Plain plain =
        plain_attention(pattern, head_of(q, h), head_of(k, h), head_of(v, h), head_of(d_out, h));
    forward = forward && close(out, h, plain.out);
    backward = backward && close(d_q, h, plain.d_q) && close(d_k, h, plain.d_k) &&
               close(d_v, h, plain.d_v);
  }
  const bool decoding = decodes(op, q, k, v, out);

  const fovea::SequenceShape shape{.queries = n, .keys = n};
  const fovea::PlanStats stats = fovea::plan_stats(pattern.plan(shape), shape);
  std::printf("%td pixels: %td of %.0f pairs are visible (%.1f %%), %td are computed\n", n,
              stats.attended_pairs, stats.all_pairs, 100 * stats.density(), stats.computed_pairs);

  const NearPixels small{.width = 8, .radius = 2};
  const drawing::Mask allows = [small](Index i, Index j) { return small.allows(i, j); };
  const std::vector<drawing::Picture> pictures = {{"NearPixels", "8 x 8, radius 2", allows, 8}};
  const bool drawn = drawing::write(file, drawing::sheet("", pictures, 64, 1));
  std::printf("%s: %s\n", file.c_str(), drawn ? "drawn" : "cannot be written");

  const auto yes = [](bool holds) { return holds ? "yes" : "no"; };
  std::printf("agrees with plain matrices: %s, backward: %s; decoder, bit for bit: %s\n",
              yes(forward), yes(backward), yes(decoding));
  return forward && backward && decoding && drawn ? 0 : 1;
}
