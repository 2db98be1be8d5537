// SPDX-License-Identifier: MIT
/// \file
/// Helpers of the conformance suite: runs, and fixtures over operators and scalars.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

#include "attention/cases.hpp"
#include "attention/covered.hpp"
#include "attention/problem.hpp"
#include "support/compare.hpp"
#include "support/levels.hpp"
#include "support/scalars.hpp"

namespace fovea_test {

inline constexpr double kOutBound = 16;  // tests/README.md, "How results are judged"
inline constexpr double kLseBound = 8;

/// The results of one call, in logical order; lse is empty if the operator has none.
template <class T>
struct Result {
  Shape shape;
  std::vector<T> out;
  std::vector<T> lse;

  const T* row(Index b, Index h, Index n) const { return out.data() + at(b, h, n) * shape[3]; }
  const T& row_lse(Index b, Index h, Index n) const { return lse[as_size(at(b, h, n))]; }

 private:
  Index at(Index b, Index h, Index n) const { return (b * shape[1] + h) * shape[2] + n; }
};

/// What a forward pass writes, initialised to NaN.
template <class T>
struct Written {
  /// \param shape of out
  Written(const Case<T>& op, const Shape& shape, const Layout& layout = {})
      : has_lse(op.is_softmax),
        out(shape, layout),
        lse(has_lse ? Shape{shape[0], shape[1], shape[2], 1} : Shape{}, layout) {}

  AllSaved<T> saved() const { return has_lse ? AllSaved<T>{lse.view()} : AllSaved<T>{}; }
  Result<T> result() const { return {out.shape(), out.values(), lse.values()}; }
  Index changed_gaps() const { return out.changed_gaps() + lse.changed_gaps(); }
  void fill(double x) const {
    out.fill(constant(x));
    lse.fill(constant(x));
  }
  /// Whether all numbers are x.
  bool holds(double x) const {
    const auto is_x = [x](T got) { return got == static_cast<T>(x); };
    return std::ranges::all_of(out.values(), is_x) && std::ranges::all_of(lse.values(), is_x);
  }

  bool has_lse;
  Tensor<T> out, lse;
};

/// Runs forward; memory between the elements of out and lse must not change.
template <class T>
Result<T> run(const Case<T>& op, const AllInputs<T>& in, AnyExecutor* executor = nullptr,
              const Layout& layout = {}) {
  const Written<T> to(op, {in.q.batch(), in.q.heads(), in.q.rows(), in.v.width()}, layout);
  op.forward(in, to.out.view(), to.saved(), executor);
  EXPECT_EQ(to.changed_gaps(), 0);
  return to.result();
}

template <class T>
Result<T> run(const Case<T>& op, const Problem<T>& problem, AnyExecutor* executor = nullptr,
              const Layout& layout = {}) {
  return run(op, problem.inputs(), executor, layout);
}

/// Whether two results are the same bits, lse included.
template <class T>
testing::AssertionResult same_bits(const Result<T>& a, const Result<T>& b) {
  if (testing::AssertionResult out = same_bits(a.out, b.out, a.shape); !out) return out;
  const Shape rows = {a.shape[0], a.shape[1], a.shape[2], 1};
  if (testing::AssertionResult lse = same_bits(a.lse, b.lse, rows); !lse) return lse << " (lse)";
  return testing::AssertionSuccess();
}

/// Whether row n of head h of batch b is the same bits as another row of another result.
template <class T>
testing::AssertionResult same_row(const Result<T>& a, const std::array<Index, 3>& row_a,
                                  const Result<T>& b, const std::array<Index, 3>& row_b) {
  const auto [b0, h0, n0] = row_a;
  const auto [b1, h1, n1] = row_b;
  const std::size_t width = as_size(a.shape[3]);
  const Shape row = {1, 1, 1, a.shape[3]};
  testing::AssertionResult out = same_bits(a.row(b0, h0, n0), b.row(b1, h1, n1), width, row);
  if (!out) return out << " in rows " << n0 << " and " << n1;
  if (a.lse.empty()) return testing::AssertionSuccess();
  testing::AssertionResult lse =
      same_bits(&a.row_lse(b0, h0, n0), &b.row_lse(b1, h1, n1), 1, {1, 1, 1, 1});
  if (!lse) return lse << " (lse) in rows " << n0 << " and " << n1;
  return testing::AssertionSuccess();
}

/// Whether the pattern shows row `row_a` of shape a and row `row_b` of shape b the same keys; at
/// the same position, if that matters.
template <class T>
bool same_keys(const Case<T>& op, const AttentionShape& a, Index row_a, const AttentionShape& b,
               Index row_b) {
  if (op.by_position() && op.position(a, row_a) != op.position(b, row_b)) return false;
  for (Index j = 0; j < std::max(a.keys, b.keys); ++j) {
    const bool in_a = j < a.keys && op.sees(a, 0, 0, row_a, j);
    const bool in_b = j < b.keys && op.sees(b, 0, 0, row_b, j);
    if (in_a != in_b) return false;
  }
  return true;
}

/// out and lse against the oracle, at every level. \param data names a separate row in the table
template <class T>
void expect_conforms(const Case<T>& op, const Problem<T>& problem, const std::string& data = "") {
  SCOPED_TRACE(describe(problem));
  const Expected<T> expected = op.oracle(problem.inputs());
  const std::string name = op.name + data;
  at_each_level([&] {
    const Result<T> got = run(op, problem);
    EXPECT_TRUE(within_ratio(got.out, expected.out, kOutBound, {name, "out"}));
    if (!op.is_softmax) return;
    EXPECT_TRUE(within_ratio(got.lse, expected.lse, kLseBound, {name, "lse"})) << "(lse)";
  });
}

/// An operator for one scalar.
struct Subject {
#if FOVEA_FULL_SUITE
  std::variant<const Case<float>*, const Case<double>*> op;
#else
  std::variant<const Case<float>*> op;
#endif
};

inline std::string name_of(const Subject& subject) {
  return std::visit([]<class T>(const Case<T>* op) { return op->name + "_" + scalar_name<T>(); },
                    subject.op);
}

inline void PrintTo(const Subject& subject, std::ostream* out) { *out << name_of(subject); }

/// The cases that `chosen` is true of.
template <class F>
std::vector<Subject> subjects(F&& chosen) {
  std::vector<Subject> all;
  const auto add = [&]<class T>(const std::vector<Case<T>>& cases) {
    for (const Case<T>& op : cases) {
      if (chosen(op)) all.push_back({&op});
    }
  };
  add(all_cases<float>());
  if constexpr (std::variant_size_v < decltype(Subject::op) >> 1) add(all_cases<OtherScalar>());
  return all;
}

/// A property of every operator: TEST_P(Conformance, Name) { each(property); } with
/// property(const Case<T>&), or { each_at_levels(property); } for one that holds at every level.
class Conformance : public testing::TestWithParam<Subject> {
 protected:
  template <class Property>
  static void each(Property&& property) {
    std::visit([&](const auto* op) { property(*op); }, GetParam().op);
  }
  template <class Property>
  static void each_at_levels(Property&& property) {
    each([&](const auto& op) { at_each_level([&] { property(op); }); });
  }
};

/// A property of the memory that calls take. (Those that make lists take more.)
class Measured : public Conformance {};

/// A property of the arithmetic, whichever pairs are visible.
class Arithmetic : public Conformance {};

/// A property of softmax attention.
class SoftmaxConformance : public Conformance {};

/// A property of the arithmetic of softmax attention.
class SoftmaxArithmetic : public Conformance {};

/// A property of softmax attention without options.
class PlainConformance : public Conformance {};

inline auto conforming_subjects() {
  return testing::ValuesIn(subjects([](const auto&) { return true; }));
}
inline auto measured_subjects() {
  return testing::ValuesIn(subjects([](const auto& op) { return !op.makes_lists; }));
}
inline auto packing_subjects() {
  return testing::ValuesIn(subjects([](const auto& op) { return op.packs; }));
}
inline auto arithmetic_subjects() {
  return testing::ValuesIn(subjects([](const auto& op) { return has_own_path(op.name); }));
}
inline auto softmax_subjects() {
  return testing::ValuesIn(subjects([](const auto& op) { return op.is_softmax; }));
}
inline auto softmax_arithmetic_subjects() {
  return testing::ValuesIn(
      subjects([](const auto& op) { return op.is_softmax && has_own_path(op.name); }));
}
inline auto plain_subjects() {
  return testing::ValuesIn(subjects([](const auto& op) { return op.plain(); }));
}

inline std::string test_name(const testing::TestParamInfo<Subject>& info) {
  return name_of(info.param);
}

/// Widths that fill registers, for D = Dv: kernels have special code for them.
inline std::vector<Index> register_widths() { return {2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256}; }

/// Without those that an operator of as many queries as keys has met before, of two numbers it
/// takes the larger one for both, and without those that are too many for an oracle of all pairs.
template <class T>
std::vector<std::array<Index, 2>> sizes_for(const Case<T>& op,
                                            const std::vector<std::array<Index, 2>>& all) {
  if (!op.is_square) return all;
  std::vector<std::array<Index, 2>> squares;
  for (const auto& [queries, keys] : all) {
    const Index most = std::max(queries, keys);
    if (most > 4096) continue;
    const std::array<Index, 2> square = {most, most};
    if (std::find(squares.begin(), squares.end(), square) == squares.end()) {
      squares.push_back(square);
    }
  }
  return squares;
}

/// The sizes that every kernel must get right: around tiles, segments and blocks, primes, 0 and 1.
template <class T>
std::vector<std::array<Index, 2>> edge_sizes(const Case<T>& op) {
  constexpr Index tile = fovea::kKeyTile;
  constexpr Index segment = fovea::kKeySegment;
  std::vector<std::array<Index, 2>> all;
  for (const Index keys :
       {Index{0}, Index{1}, Index{2}, Index{17}, tile - 1, tile, tile + 1, 2 * tile + 1}) {
    for (const Index queries : {0, 1, 2, 7, 31, 63, 64, 65, 131}) all.push_back({queries, keys});
  }
  for (const Index keys : {segment - 1, segment, segment + 1, 2 * segment + 3}) {
    for (const Index queries : {1, 3, 37}) all.push_back({queries, keys});
  }
  for (const Index queries : {511, 513, 640}) all.push_back({queries, 29});
  all.push_back({4097, 3});
  return sizes_for(op, all);
}

}  // namespace fovea_test
