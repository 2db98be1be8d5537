// SPDX-License-Identifier: MIT
/// \file
/// One trial of an operator of Fourier transforms, the cross of hidden states or the Fourier mixer:
/// both passes against their definitions, and the same bits in other layouts. Failures are
/// GoogleTest expectations.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "fovea/spectral/fourier_mixer.hpp"
#include "fuzz/drawn_calls.hpp"
#include "spectral/cross_case.hpp"
#include "support/oracle/fourier_mixer.hpp"
#include "support/scalars.hpp"

namespace fovea_test {

inline constexpr double kTransformBound = 8;  // of transforms, as in tests/spectral

template <class T>
void try_cross(Bytes& bytes) {
  const Index rows = bytes.once_in(8) ? bytes(400, 700) : drawn_rows(bytes);
  const Index most = std::clamp<Index>(100'000 / std::max<Index>(1, rows * rows), 1, 80);
  const Shape shape = {bytes(0, 3), 1, rows, bytes(0, most)};
  const std::vector<Index> lengths = drawn_lengths(bytes, shape[0], rows);
  SCOPED_TRACE("cross of hidden states, " + std::string(scalar_name<T>()) + ": B " +
               std::to_string(shape[0]) + ", N " + std::to_string(rows) + ", C " +
               std::to_string(shape[3]));
  using Result = typename CrossCase<T>::Result;
  try_here_and_elsewhere(
      bytes, [&](const Layout& layout) { return CrossCase<T>(shape, lengths, layout); },
      [](const CrossCase<T>& of, AnyExecutor* executor, const Layout& layout) {
        return executor == nullptr ? of.run(fovea::Serial{}, layout) : of.run(*executor, layout);
      },
      [](const CrossCase<T>& of, const Result& got) {
        const auto expected = of.expected();
        const std::string name = drawn_name("fourier_cross");
        EXPECT_TRUE(within_ratio(got.out, expected.out, kTransformBound, {name, "out"}));
        EXPECT_TRUE(within_ratio(got.d_f1, expected.d_f1, kTransformBound, {name, "d_f1"}));
        EXPECT_TRUE(within_ratio(got.d_f2, expected.d_f2, kTransformBound, {name, "d_f2"}));
      },
      [&](const CrossCase<T>& of) {
        poison_rows<T>(bytes, lengths, {&of.f1, &of.f2, &of.g});
      });
}

/// The mixer's expected results for both directions, which are the same map.
template <class T>
struct MixerResult {
  std::vector<T> out, d_x;

  template <class F>
  void for_each(F&& f) const {
    f("out", out), f("d_x", d_x);
  }
};

template <class T>
void try_mixer(Bytes& bytes) {
  const Index rows = drawn_rows(bytes);
  const Index width = bytes.once_in(4) ? drawn_width(bytes) : bytes(1, 90);
  const Shape shape = {bytes(0, 2), 1, rows, width};
  const std::uint64_t seed = drawn_seed(bytes);
  const double spread = drawn_sharded(bytes);
  SCOPED_TRACE("Fourier mixer " + std::string(scalar_name<T>()) + ": B " +
               std::to_string(shape[0]) + ", N " + std::to_string(rows) + ", D " +
               std::to_string(width));
  const auto make = [&](const Layout& layout) {
    Tensor<T> x(shape, layout);
    x.fill(gaussian(seed, spread));
    return x;
  };
  try_here_and_elsewhere(
      bytes, make,
      [&](const Tensor<T>& x, AnyExecutor* executor, const Layout& layout) {
        const Tensor<T> out(shape, layout), d_x(shape, layout);
        on_executor(executor, [&](auto&& on) {
          fovea::FourierMixer().forward(x.view(), out.view(), on);
          fovea::FourierMixer().backward(x.view(), d_x.view(), on);
        });
        EXPECT_EQ(out.changed_gaps() + d_x.changed_gaps(), 0);
        return MixerResult<T>{out.values(), d_x.values()};
      },
      [](const Tensor<T>& x, const MixerResult<T>& got) {
        const auto expected = oracle_fourier_mixer<T>(x.view());
        const std::string name = drawn_name("fourier_mixer");
        EXPECT_TRUE(within_ratio(got.out, expected, kTransformBound, {name, "out"}));
        EXPECT_TRUE(within_ratio(got.d_x, expected, kTransformBound, {name, "d_x"}));
      },
      [](const Tensor<T>& /*x*/) {});
}

template <class T>
void try_transform_of(Bytes& bytes) {
  bytes.once_in(2) ? try_cross<T>(bytes) : try_mixer<T>(bytes);
}

inline void try_transform(std::span<const std::uint8_t> data) {
  Bytes bytes(data);
  bytes.once_in(2) ? try_transform_of<OtherScalar>(bytes) : try_transform_of<float>(bytes);
}

}  // namespace fovea_test
