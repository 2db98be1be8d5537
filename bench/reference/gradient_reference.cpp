// SPDX-License-Identifier: MIT
#include "bench/reference/gradient_reference.hpp"

#include "bench/reference/far_oracles.hpp"

namespace bench {

namespace {

template <class T>
void judge_all(const fovea_test::Reference<T>& want, const View<T>& got, Index head, Error& error) {
  std::size_t at = 0;
  for (Index n = 0; n < want.shape[2]; ++n) {
    for (Index c = 0; c < want.shape[3]; ++c, ++at) {
      const auto x = static_cast<Wide<T>>(got(0, head, n, c));
      error.add(static_cast<double>(std::abs(x - want.value[at])),
                static_cast<double>(2 * fovea_test::kRoundoff<T> * want.gauge[at]));
    }
  }
}

}  // namespace

template <class T>
Error gradients_error(const AllInputs<T>& in, const AllGrads<T>& grads,
                      const std::vector<Index>& key_heads, const AddGradients<T>& add) {
  const auto zeros = [](const View<const T>& x) {
    return fovea_test::zero_reference<T>({1, 1, x.rows(), x.width()});
  };
  Error error;
  const Index group = in.q.heads() / in.k.heads();
  for (const Index key_head : key_heads) {
    fovea_test::ExpectedGrads<T> want{{}, zeros(in.k), zeros(in.v)};
    if (!in.beta.empty()) want.beta = zeros(in.beta);
    for (Index head = key_head * group; head < (key_head + 1) * group; ++head) {
      want.q = zeros(in.q);
      add(head, want);
      judge_all(want.q, grads.q, head, error);
    }
    judge_all(want.k, grads.k, key_head, error);
    judge_all(want.v, grads.v, key_head, error);
    if (!in.beta.empty()) judge_all(want.beta, grads.beta, key_head, error);
  }
  return error;
}

template <class T>
Error softmax_gradient_error(const fovea_test::ReferenceMask& mask, const AllInputs<T>& in,
                             const View<const T>& d_out, const AllGrads<T>& grads, Index samples) {
  std::vector<Index> key_heads;
  for (Index h = 0; h < in.k.heads(); ++h) key_heads.push_back(h);
  return gradients_error<T>(in, grads, key_heads, [&](Index head, auto& to) {
    const AllInputs<T> one = one_head(in, head);
    const auto of_head = [&](fovea_test::Pair p) {
      p.h = head;
      return mask(p);
    };
    const auto op = OracleOperator<T>::of({}, of_head, in.q.width());
    const auto sequence = fovea_test::oracle_sequences(one).front();
    const View<const T> d_head(&d_out(0, head, 0, 0), {1, 1, d_out.rows(), d_out.width()},
                               d_out.strides());
    for (const Index row : sampled_rows(samples, head, in.q.rows())) {
      fovea_test::detail::add_row(one, op.scale, d_head, oracle_row(one, op, sequence, 0, row), to);
    }
  });
}

template Error gradients_error(const AllInputs<float>&, const AllGrads<float>&,
                               const std::vector<Index>&, const AddGradients<float>&);
template Error softmax_gradient_error(const fovea_test::ReferenceMask&, const AllInputs<float>&,
                                      const View<const float>&, const AllGrads<float>&, Index);
#if !defined(FOVEA_BENCH_FLOAT_ONLY)
template Error gradients_error(const AllInputs<double>&, const AllGrads<double>&,
                               const std::vector<Index>&, const AddGradients<double>&);
template Error softmax_gradient_error(const fovea_test::ReferenceMask&, const AllInputs<double>&,
                                      const View<const double>&, const AllGrads<double>&, Index);
#endif

}  // namespace bench
