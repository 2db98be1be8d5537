// SPDX-License-Identifier: MIT
/// \file
/// Helpers for trials of calls: random sizes and lengths, NaN in unused memory, and comparisons
/// with an oracle and with the same call in another layout.
#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <vector>

#include "attention/call_problem.hpp"
#include "fuzz/drawn_problem.hpp"
#include "support/scalars.hpp"

namespace fovea_test {

/// Where in the table of errors results of drawn calls are.
inline std::string drawn_name(const std::string& name) { return name + " drawn"; }

inline std::uint64_t drawn_seed(Bytes& bytes) { return static_cast<std::uint64_t>(bytes(1, 255)); }

/// The standard deviation of normal data.
inline double drawn_sharded(Bytes& bytes) {
  static const std::vector<double> all = {1, 1, 1, 1, 4, 1e-3};
  return drawn_of(bytes, all);
}

/// From 1 to `most`, fewer where each has many pairs.
inline Index drawn_few(Bytes& bytes, Index most, Index pairs_of_each) {
  constexpr Index most_pairs = 40'000;
  return bytes(1, std::clamp<Index>(most_pairs / std::max<Index>(1, pairs_of_each), 1, most));
}

/// A number of sequences, of few pairs together; now and then none at all.
inline Index drawn_batch(Bytes& bytes, Index pairs_of_each) {
  return bytes.once_in(16) ? 0 : drawn_few(bytes, 3, pairs_of_each);
}

/// Key lengths that are multiples of `step`, or none at all.
inline std::vector<Index> drawn_lengths(Bytes& bytes, Index batch, Index rows, Index step = 1) {
  std::vector<Index> lengths;
  if (!bytes.once_in(3)) return lengths;
  for (Index b = 0; b < batch; ++b) lengths.push_back(bytes(0, rows / step) * step);
  return lengths;
}

/// NaN, infinity or the largest number.
template <class T>
T drawn_poison(Bytes& bytes) {
  static const std::vector<T> all = all_poisons<T>();
  return drawn_of(bytes, all);
}

/// Runs a call and judges it, and then again with another layout, other threads and NaN in unused
/// memory, which must give the same bits.
/// \param make make(layout) is what the call reads, in a layout
/// \param run run(read, executor, layout) is what it writes; the executor may be null
/// \param judge judge(read, written) compares results with an oracle
/// \param hide hide(read) overwrites what may not be read
template <class Make, class Run, class Judge, class Hide>
void try_here_and_elsewhere(Bytes& bytes, const Make& make, const Run& run, const Judge& judge,
                            const Hide& hide) {
  const AtLevel at(drawn_level(bytes));
  const auto elsewhere = make(drawn_input_layout(bytes));
  const Layout of_written = drawn_layout(bytes);
  AnyExecutor executor = drawn_executor(bytes);
  hide(elsewhere);
  const auto read = make(Layout{});
  try {
    const auto written = run(read, nullptr, Layout{});
    judge(read, written);
    EXPECT_TRUE(same_bits(written, run(elsewhere, &executor, of_written)));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "refused: " << error.what();
  }
}

/// The operator of a CallProblem, its scalar and its sizes.
template <class P>
std::string describe_call(const P& p) {
  std::ostringstream text;
  text << P::Op::name() << " " << scalar_name<typename P::Scalar>() << ":";
  for (const auto& [axis, extent] : p.extents) text << " " << axis << " " << extent;
  text << ", lengths";
  for (const Index n : p.key_lengths) text << " " << n;
  return text.str();
}

/// The same of a CallProblem.
/// \param make make(layout) is the problem   \param options of its operator, for messages
/// \param saves as in CallProblem::run
/// \param is_judged is_judged(problem) is whether the oracle has one result for it
template <class Make, class IsJudged>
void try_problem(Bytes& bytes, const Make& make, const std::string& options, bool saves,
                 const IsJudged& is_judged) {
  using P = decltype(make(Layout{}));
  SCOPED_TRACE(describe_call(make({})) + options);
  try_here_and_elsewhere(
      bytes, make,
      [&](const P& p, AnyExecutor* executor, const Layout& layout) {
        return p.run(executor, layout, saves);
      },
      [&](const P& p, const auto& got) {
        if (is_judged(p)) judge_of_call(p)(got, drawn_name(P::Form::name));
      },
      [&](const P& p) { p.hide(drawn_poison<typename P::Scalar>(bytes)); });
}
template <class Make>
void try_problem(Bytes& bytes, const Make& make, const std::string& options = "",
                 bool saves = true) {
  try_problem(bytes, make, options, saves, [](const auto&) { return true; });
}

}  // namespace fovea_test
