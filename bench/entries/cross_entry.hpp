// SPDX-License-Identifier: MIT
/// \file
/// Entries of the cross of hidden states, f1, f2 and d_out [1, 1, N, C] in the places of q, k and
/// v, and of its peers. Flops are those by which FFTs are counted,
/// 5 N log2 N of a complex transform of N, of the transforms that this cross has.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/baselines/fftw_peers.hpp"
#include "bench/entries/operator_entry.hpp"
#include "fovea/spectral/hidden_state_cross.hpp"
#include "tests/support/oracle/hidden_state_cross.hpp"

namespace bench {

using fovea::CrossInputs;
using fovea::FftPlanning;
using fovea::HiddenStateCross;

inline CrossInputs<float> cross_inputs(const AllInputs<float>& in) { return {in.q, in.k}; }

/// The obstacle of an entry whose transform, of that name, needs q and v of one width.
inline auto one_width_for(const char* transform) {
  return [=](const AttentionShape& s) -> std::string {
    if (s.value_width == s.width) return {};
    return std::string("the ") + transform + " has the width of q, which is " +
           std::to_string(s.width) + "; v has " + std::to_string(s.value_width);
  };
}

/// Flops of that many complex transforms of length N.
inline double transform_flops(const AttentionShape& shape, double transforms) {
  const auto n = static_cast<double>(shape.keys);
  return static_cast<double>(shape.width) * transforms * 5 * n * std::log2(n);
}

namespace detail {

/// `value(channel of a, channel of b, row)` against x, in some rows of some channels; the unit is
/// that of transforms: u lg N |a| |b|.
template <class F>
Error cross_error(const View<const float>& a, const View<const float>& b,
                  const View<const float>& x, Index samples, const F& value) {
  constexpr double u = 0x1p-24;
  Error error;
  for (Index s = 0; s < samples; ++s) {
    const Index c = sampled_row(s, samples, 0, x.width());
    const std::vector<double> first = fovea_test::channel(a, 0, c, x.rows());
    const std::vector<double> second = fovea_test::channel(b, 0, c, x.rows());
    const double lg = std::log2(static_cast<double>(std::max<Index>(x.rows(), 2)));
    const double unit = u * lg * fovea_test::norm(first) * fovea_test::norm(second);
    for (Index t = 0; t < 64; ++t) {
      const Index i = t * (x.rows() - 1) / 63;
      error.add(std::abs(double{x(0, 0, i, c)} - value(first, second, i)), unit);
    }
  }
  return error;
}

/// Row i of eqs. 2 and 4.
inline double cross_value(const std::vector<double>& a, const std::vector<double>& b, Index i) {
  const auto n = static_cast<Index>(a.size());
  if (i == n - 1) return 0;
  const auto at = [](const std::vector<double>& x, Index j) {
    return x[static_cast<std::size_t>(j)];
  };
  double sum = -at(a, i) * at(b, i);
  for (Index j = 0; j < n; ++j) {
    for (const Index k : {2 * i - j, 2 * i + 1 - j}) {
      if (k >= 0 && k < n) sum += at(a, j) * at(b, k);
    }
  }
  return sum;
}

/// Row a of its adjoint.
inline double cross_gradient(const std::vector<double>& g, const std::vector<double>& f, Index a) {
  const auto n = static_cast<Index>(f.size());
  const auto at = [](const std::vector<double>& x, Index j) {
    return x[static_cast<std::size_t>(j)];
  };
  const auto given = [&](Index i) { return i < n - 1 ? at(g, i) : 0; };
  double sum = -given(a) * at(f, a);
  for (Index b = 0; b < n; ++b) sum += given((a + b) / 2) * at(f, b);
  return sum;
}

inline Entry cross_entry_of(Names names, std::vector<Family> families, double transforms) {
  for (Family& family : families) family.heads = family.key_heads = 1;
  Entry entry;
  entry.names = std::move(names);
  entry.families = std::move(families);
  entry.attended_pairs = [](const AttentionShape&) { return Index{0}; };
  entry.own_flops = [=](const AttentionShape& s) { return transform_flops(s, transforms); };
  return entry;
}

}  // namespace detail

inline Entry cross_forward_entry(Names names, FftPlanning planning, std::vector<Family> families) {
  const HiddenStateCross op({planning});
  Entry entry = detail::cross_entry_of(std::move(names), std::move(families), 2.5);
  entry.f32 = {[op](const AllInputs<float>& in, const View<float>& out) {
                 return Prepared{[=](ThreadPool& pool) { op.forward(cross_inputs(in), out, pool); },
                                 [=](Index samples) {
                                   return detail::cross_error(in.q, in.k, out, samples,
                                                              detail::cross_value);
                                 }};
               },
               [op](const AttentionShape& s, Index workers) {
                 return op.workspace_bytes<float>(1, s.keys, s.width, workers);
               }};
  return entry;
}

inline Entry cross_backward_entry(Names names, FftPlanning planning, std::vector<Family> families) {
  names.pass = Pass::backward;
  const HiddenStateCross op({planning});
  Entry entry = detail::cross_entry_of(std::move(names), std::move(families), 4.5);
  entry.f32 = {
      [op](const AllInputs<float>& in, const View<float>& out) {
        const auto d_f2 = std::make_shared<fovea::Workspace>(out.size(), sizeof(float));
        const View<float> second(d_f2->data<float>(), out.shape());
        return Prepared{
            [=](ThreadPool& pool) {
              op.backward(cross_inputs(in), in.v, {out, second}, pool);
            },
            [=, keeps = d_f2](Index samples) {
              Error error = detail::cross_error(in.v, in.k, out, samples, detail::cross_gradient);
              error.add(detail::cross_error(in.v, in.q, second, samples, detail::cross_gradient));
              return error;
            }};
      },
      [op](const AttentionShape& s, Index workers) {
        return op.backward_workspace_bytes<float>(1, s.keys, s.width, workers);
      }};
  return entry;
}

inline Entry strided_fftw_entry(Names names, std::vector<Family> families) {
  // Of real transforms of 2N, which count as complex ones of N.
  Entry entry = detail::cross_entry_of(std::move(names), std::move(families), 3);
  entry.f32 = {[](const AllInputs<float>& in, const View<float>& out) {
                 const auto peer = std::make_shared<StridedCross>(in.q.rows(), in.q.width());
                 return Prepared{[=](ThreadPool&) { peer->run(in.q, in.k, out); },
                                 [=](Index samples) {
                                   return detail::cross_error(in.q, in.k, out, samples,
                                                              detail::cross_value);
                                 }};
               },
               [](const AttentionShape& s, Index) {
                 return (6 * s.keys + 4) * s.width * Index{sizeof(float)};
               }};
  return entry;
}

inline Entry transforms_alone_entry(Names names, std::vector<Family> families) {
  Entry entry = detail::cross_entry_of(std::move(names), std::move(families), 3);
  entry.f32 = {[](const AllInputs<float>& in, const View<float>&) {
                 const auto peer = std::make_shared<TransformsAlone>(in.q.rows(), in.q.width());
                 return Prepared{[=](ThreadPool&) { peer->run(); }, {}};
               },
               [](const AttentionShape&, Index) { return Index{1} << 20; }};
  return entry;
}

}  // namespace bench
