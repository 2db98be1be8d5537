// SPDX-License-Identifier: MIT
/// \file
/// Gated units and their gradients, at every level: against the definition in double, at the ends,
/// and each element for itself.
#include "fovea/kernels/layers/table.hpp"
#include "kernels/layers/drawn_rows.hpp"

namespace fovea_test::kernels_layers_gated {

using fovea::GateKind;

template <class T>
class Gated : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Gated, Scalars);

/// The value and the slope of a gate.
std::pair<double, double> gate(GateKind kind, double x) {
  if (kind == GateKind::gelu) {
    const double below = std::erfc(-x / std::sqrt(2)) / 2;
    return {x * below, below + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1))};
  }
  const double slope = 2 * std::sqrt(2 / std::acos(-1));
  const double inner = kind == GateKind::silu ? x : slope * (x + 0.044715 * x * x * x);
  const double inner_slope = kind == GateKind::silu ? 1 : slope * (1 + 3 * 0.044715 * x * x);
  const double s = 1 / (1 + std::exp(-inner));
  return {x * s, s + x * s * (1 - s) * inner_slope};
}

template <class T>
fovea::GatedArgs<T> args_of(const DrawnRows<T>& gates, const DrawnRows<T>& ups,
                            const DrawnRows<T>& d_y, GateKind kind) {
  fovea::GatedArgs<T> args;
  args.gate = gates.data(), args.gate_row = gates.row;
  args.up = ups.data(), args.up_row = ups.row;
  args.d_y = d_y.data(), args.d_y_row = d_y.row;
  args.rows = gates.rows, args.width = gates.columns;
  args.kind = kind;
  return args;
}

TYPED_TEST(Gated, MatchesItsDefinitionInBothPasses) {
  using T = TypeParam;
  for (const GateKind kind : {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh}) {
    for (const Index width : {1, 5, 16, 19, 64}) {
      at_each_level([&] {
        DrawnRows<T> gates(3, width, 1), ups(3, width, 2), d_y(3, width, 3);
        for (Index c = 0; c < width; ++c) gates(0, c) *= 4;
        DrawnRows<T> y = ups, d_gate = ups, d_up = ups;
        fovea::GatedArgs<T> args = args_of(gates, ups, d_y, kind);
        args.y = y.data(), args.y_row = y.row;
        args.d_gate = d_gate.data(), args.d_gate_row = d_gate.row;
        args.d_up = d_up.data(), args.d_up_row = d_up.row;
        fovea::LayerKernels<T>().gated(args);
        fovea::LayerKernels<T>().gated_grad(args);
        for (Index i = 0; i < 3; ++i) {
          for (Index c = 0; c < width; ++c) {
            const double x = gates(i, c), up = ups(i, c), d = d_y(i, c);
            const auto [value, slope] = gate(kind, x);
            const double steep = 1 + std::abs(x) * (1 + x * x);
            EXPECT_TRUE(is_near(y(i, c), value * up, std::abs(x * up), 14)) << x;
            EXPECT_TRUE(is_near(d_up(i, c), value * d, std::abs(x * d), 14)) << x;
            EXPECT_TRUE(is_near(d_gate(i, c), slope * up * d, std::abs(steep * up * d), 14)) << x;
          }
        }
        EXPECT_TRUE(y.has_its_gaps() && d_gate.has_its_gaps() && d_up.has_its_gaps());
        // Gradients may overwrite inputs.
        args.d_gate = gates.data(), args.d_gate_row = gates.row;
        args.d_up = ups.data(), args.d_up_row = ups.row;
        fovea::LayerKernels<T>().gated_grad(args);
        EXPECT_TRUE(same_bits(gates.data(), d_gate.data(), as_size(3 * gates.row), {}));
        EXPECT_TRUE(same_bits(ups.data(), d_up.data(), as_size(3 * ups.row), {}));
      });
    }
  }
}

TYPED_TEST(Gated, HandlesExtremes) {
  using T = TypeParam;
  constexpr T inf = std::numeric_limits<T>::infinity();
  constexpr T most = std::numeric_limits<T>::max();
  const T x[] = {most, inf, -most, -inf, std::numeric_limits<T>::quiet_NaN()};
  const T one[] = {1, 1, 1, 1, 1};
  for (const GateKind kind : {GateKind::silu, GateKind::gelu, GateKind::gelu_tanh}) {
    at_each_level([&] {
      T y[5], d_gate[5], d_up[5];
      fovea::GatedArgs<T> args;
      args.gate = x, args.up = one, args.d_y = one, args.rows = 1, args.width = 5;
      args.y = y, args.d_gate = d_gate, args.d_up = d_up, args.kind = kind;
      fovea::LayerKernels<T>().gated(args);
      fovea::LayerKernels<T>().gated_grad(args);
      EXPECT_EQ(y[0], most);
      EXPECT_EQ(y[1], inf);
      for (const int i : {2, 3}) EXPECT_EQ(y[i], 0);
      for (const int i : {0, 1}) EXPECT_EQ(d_gate[i], 1);
      for (const int i : {2, 3}) EXPECT_EQ(d_gate[i], 0);
      EXPECT_TRUE(std::isnan(y[4]) && std::isnan(d_gate[4]) && std::isnan(d_up[4]));
    });
  }
}

TYPED_TEST(Gated, ElementsAreIndependent) {
  using T = TypeParam;
  at_each_level([&] {
    const DrawnRows<T> gates(1, 37, 1), ups(1, 37, 2), d_y(1, 37, 3);
    std::vector<T> y(37), d_gate(37), d_up(37);
    fovea::GatedArgs<T> args = args_of(gates, ups, d_y, GateKind::silu);
    args.y = y.data(), args.d_gate = d_gate.data(), args.d_up = d_up.data();
    fovea::LayerKernels<T>().gated(args);
    fovea::LayerKernels<T>().gated_grad(args);
    for (std::size_t i = 0; i < 37; ++i) {
      T one[3];
      args.gate = gates.data() + i, args.up = ups.data() + i, args.d_y = d_y.data() + i;
      args.width = 1, args.y = one, args.d_gate = one + 1, args.d_up = one + 2;
      fovea::LayerKernels<T>().gated(args);
      fovea::LayerKernels<T>().gated_grad(args);
      const T expected[] = {y[i], d_gate[i], d_up[i]};
      EXPECT_TRUE(same_bits(one, expected, 3, {}));
    }
  });
}

}  // namespace fovea_test::kernels_layers_gated
