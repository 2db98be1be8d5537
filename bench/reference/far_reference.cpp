// SPDX-License-Identifier: MIT
#include "bench/reference/far_reference.hpp"

#include <vector>

#include "bench/reference/far_oracles.hpp"

namespace bench {

namespace {

/// Adds the terms of the feature maps to the rows of a problem of one head.
/// \param positions of the rows
template <class T, class F>
void for_each_sum(const FarModel& model, const AllInputs<T>& one,
                  const std::vector<Index>& positions, const F& f) {
  fovea_test::OracleLinear<T> op;
  for (const FarMap map : model.sums) op.maps.push_back(oracle_map<T>(map));
  for (const auto& map : fovea_test::oracle_far_maps(one, op)) {
    for (std::size_t s = 0; s < positions.size(); ++s) {
      fovea_test::OracleLinearPlace at{0, 0, static_cast<Index>(s), 0, {}};
      const Index end = model.causal ? positions[s] + 1 : one.k.rows();
      for (Index j = 0; j < end; ++j) at.keys.push_back(j);
      const auto row = fovea_test::oracle_linear_row(op, map, at);
      RowReference<T> out;
      for (Index c = 0; c < one.v.width(); ++c) {
        const auto term = fovea_test::oracle_term(one, at, row, c);
        out.value.push_back(term.value);
        out.gauge.push_back(term.gauge);
      }
      f(s, out);
    }
  }
}

/// The truth for the rows at some positions of one head.
/// \param one its tokens, and these rows of q
template <class T>
std::vector<RowReference<T>> far_rows(const FarModel& model, const AllInputs<T>& one,
                                      const std::vector<Index>& positions, Wide<T> near_weight,
                                      Wide<T> far_weight) {
  const std::vector<Wide<T>> zeros(static_cast<std::size_t>(one.v.width()));
  std::vector<RowReference<T>> rows(positions.size(), {zeros, zeros});
  const auto add = [&](std::size_t s, Wide<T> weight, const RowReference<T>& part) {
    for (std::size_t c = 0; c < zeros.size(); ++c) {
      rows[s].value[c] += weight * part.value[c];
      rows[s].gauge[c] += weight * part.gauge[c];
    }
  };
  fovea_test::OracleSequence sequence = fovea_test::oracle_sequences(one).front();
  if (model.near_field) {
    const auto band = band_of<T>(*model.near_field, one.q.width());
    for (std::size_t s = 0; s < positions.size(); ++s) {
      const auto row = static_cast<Index>(s);
      sequence.first = positions[s] - row;
      add(s, near_weight, oracle_out(one, oracle_row(one, band, sequence, 0, row)));
    }
  }
  for_each_sum(model, one, positions,
               [&](std::size_t s, const auto& part) { add(s, far_weight, part); });
  std::vector<fovea_test::OracleDeltaRow> last;
  for (std::size_t s = 0; s < positions.size(); ++s) {
    last.push_back({static_cast<Index>(s), positions[s]});
  }
  for (const FarMap map : model.deltas) {
    const fovea_test::OracleDelta<T> delta{oracle_map<T>(map)};
    const fovea_test::OracleDeltaHead<T> head(one, delta, sequence, 0);
    for_each_delta_row(head, last, [&](const auto& row, const auto& token) {
      add(static_cast<std::size_t>(row.query), far_weight,
          fovea_test::oracle_delta_out<T>(one, delta, 0, 0, row.query, token));
    });
  }
  return rows;
}

/// The tokens that a decoder has seen: those of some inputs, over and over.
template <class T>
struct RepeatedTokens {
  RepeatedTokens(const AllInputs<T>& in, Index count) : inputs(in) {
    inputs.k = repeated(in.k, count, k);
    inputs.v = repeated(in.v, count, v);
    inputs.beta = repeated(in.beta, count, beta);
  }

  static View<const T> repeated(const View<const T>& x, Index count, std::vector<T>& to) {
    if (x.empty() || count == x.rows()) return x;
    for (Index h = 0; h < x.heads(); ++h) {
      for (Index t = 0; t < count; ++t) {
        for (Index c = 0; c < x.width(); ++c) to.push_back(x(0, h, t % x.rows(), c));
      }
    }
    return View<const T>(to.data(), {1, x.heads(), count, x.width()});
  }

  std::vector<T> k, v, beta;
  AllInputs<T> inputs;
};

}  // namespace

template <class T>
Error far_error(const FarModel& model, const AllInputs<T>& given, Index tokens,
                const View<const T>& out, Index samples, const Rounding& rounding) {
  const RepeatedTokens<T> all(given, tokens);
  const AllInputs<T>& in = all.inputs;
  Error error;
  for (Index head = 0; head < out.heads(); ++head) {
    AllInputs<T> one = one_head(in, head);
    const std::vector<Index> rows = sampled_rows(samples, head, in.q.rows());
    std::vector<Index> positions;
    std::vector<T> q;
    for (const Index row : rows) {
      positions.push_back(in.k.rows() - in.q.rows() + row);
      for (Index c = 0; c < in.q.width(); ++c) q.push_back(in.q(0, head, row, c));
    }
    one.q = View<const T>(q.data(), {1, 1, std::ssize(rows), in.q.width()});
    const fovea_test::detail::OracleBlend<T> blend(in, {}, head, 0);
    const auto want = far_rows(model, one, positions, blend.near_field, blend.far_field);
    for (std::size_t s = 0; s < rows.size(); ++s) {
      judge(want[s], out, head, rows[s], rounding, error);
    }
  }
  return error;
}

template Error far_error(const FarModel&, const AllInputs<float>&, Index, const View<const float>&,
                         Index, const Rounding&);
#if !defined(FOVEA_BENCH_FLOAT_ONLY)
template Error far_error(const FarModel&, const AllInputs<double>&, Index,
                         const View<const double>&, Index, const Rounding&);
#endif

}  // namespace bench
