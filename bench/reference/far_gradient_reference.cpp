// SPDX-License-Identifier: MIT
#include <vector>

#include "bench/reference/far_oracles.hpp"
#include "bench/reference/far_reference.hpp"
#include "bench/reference/gradient_reference.hpp"

namespace bench {

namespace {

using fovea_test::ExpectedGrads;

/// Adds the gradients of the near field in some rows of a head.
/// \param d_out of the near field, [1, 1, N, Dv]
template <class T>
void add_band(const fovea::LocalAttention& near_field, const AllInputs<T>& one,
              const std::vector<Index>& rows, const View<const Wide<T>>& d_out,
              ExpectedGrads<T>& to) {
  const auto band = band_of<T>(near_field, one.q.width());
  const auto sequence = fovea_test::oracle_sequences(one).front();
  for (const Index row : rows) {
    fovea_test::detail::add_row(one, band.scale, d_out, oracle_row(one, band, sequence, 0, row),
                                to);
  }
}

/// Adds those of the feature maps. \param d_out of the far field
template <class T>
void add_sums(const FarModel& model, const AllInputs<T>& one, const std::vector<Index>& rows,
              const View<const Wide<T>>& d_out, ExpectedGrads<T>& to) {
  fovea_test::OracleLinear<T> op;
  for (const FarMap map : model.sums) op.maps.push_back(oracle_map<T>(map));
  const auto maps = fovea_test::oracle_far_maps(one, op);
  for (const Index row : rows) {
    fovea_test::OracleLinearPlace at{0, 0, row, 0, {}};
    const Index end = model.causal ? row + 1 : one.k.rows();
    for (Index j = 0; j < end; ++j) at.keys.push_back(j);
    for (const auto& map : maps) {
      fovea_test::detail::LinearRowGrad(one, op, map, at, d_out, to).add();
    }
  }
}

/// Adds those of the delta rule, of all rows. \param d_out of the far field
template <class T>
void add_deltas(const FarModel& model, const AllInputs<T>& one, const View<const Wide<T>>& d_out,
                ExpectedGrads<T>& to) {
  using fovea_test::detail::add_to;
  for (const FarMap map : model.deltas) {
    const auto grads =
        delta_grad_oracle(one, fovea_test::OracleDelta<T>{oracle_map<T>(map)}, d_out);
    add_to(to.q, grads.q);
    add_to(to.k, grads.k);
    add_to(to.v, grads.v);
    add_to(to.beta, grads.beta);
  }
}

}  // namespace

template <class T>
Error far_gradient_error(const FarModel& model, const AllInputs<T>& in, const View<const T>& d_out,
                         const AllGrads<T>& grads, Index samples) {
  using W = Wide<T>;
  std::vector<Index> key_heads = {0};
  if (in.k.heads() > 1) key_heads.push_back(in.k.heads() - 1);
  return gradients_error<T>(in, grads, key_heads, [&](Index head, ExpectedGrads<T>& to) {
    const AllInputs<T> one = one_head(in, head);
    const std::vector<Index> rows = sampled_rows(samples, head, in.q.rows());
    const auto weighted = [&](W weight) {
      std::vector<W> numbers;
      for (Index n = 0; n < d_out.rows(); ++n) {
        for (Index c = 0; c < d_out.width(); ++c) {
          numbers.push_back(weight * static_cast<W>(d_out(0, head, n, c)));
        }
      }
      return numbers;
    };
    const fovea::Shape shape = {1, 1, d_out.rows(), d_out.width()};
    const fovea_test::detail::OracleBlend<T> blend(in, {}, head, 0);
    const std::vector<W> near_numbers = weighted(blend.near_field);
    const std::vector<W> far_numbers = weighted(blend.far_field);
    const View<const W> d_far(far_numbers.data(), shape);
    if (model.near_field) {
      add_band(*model.near_field, one, rows, View<const W>(near_numbers.data(), shape), to);
    }
    add_sums(model, one, rows, d_far, to);
    add_deltas(model, one, d_far, to);
  });
}

template Error far_gradient_error(const FarModel&, const AllInputs<float>&,
                                  const View<const float>&, const AllGrads<float>&, Index);
#if !defined(FOVEA_BENCH_FLOAT_ONLY)
template Error far_gradient_error(const FarModel&, const AllInputs<double>&,
                                  const View<const double>&, const AllGrads<double>&, Index);
#endif

}  // namespace bench
