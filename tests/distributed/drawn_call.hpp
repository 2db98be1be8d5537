// SPDX-License-Identifier: MIT
/// \file
/// Calls over ranks as bytes choose them: sizes, data, what is read beside, who holds which rows,
/// and where they lie in memory. Every rank draws the same, but for what is its own.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "fuzz/drawn_problem.hpp"
#include "support/ranks.hpp"

namespace fovea_test {

/// Rows in pieces that belong to any rank.
/// \param multiple where pieces may begin and end
inline RowLayout drawn_row_layout(Bytes& bytes, Index rows, Index multiple = 1) {
  const int ranks = all_ranks().size();
  switch (bytes(0, 3)) {
    case 0:
      return RowLayout::contiguous(rows, ranks, multiple);
    case 1:
      return RowLayout::zigzag(rows, ranks, multiple);
    default:
      break;
  }
  const Index longest = bytes.once_in(2) ? 8 : std::max<Index>(1, rows / multiple);
  std::vector<std::vector<Range>> of_ranks(as_size(ranks));
  for (Index first = 0; first < rows;) {
    const Index end = std::min(rows, first + multiple * bytes(1, longest));
    of_ranks[as_size(bytes(0, ranks - 1))].push_back({first, end});
    first = end;
  }
  return RowLayout(of_ranks);
}

/// Sizes of a sequence that attends to itself: short ones of all widths, or long ones.
inline AttentionShape drawn_square(Bytes& bytes) {
  AttentionShape s = drawn_shape(bytes);
  s.queries = s.keys = bytes.once_in(6) ? bytes(400, 1500) : std::max(s.queries, s.keys);
  if (s.queries >= 400) s.batch = 1;
  return s;
}

/// Such a sequence, perhaps with key lengths. \param extras what is read beside q, k and v
template <class T>
Problem<T> drawn_square_problem(Bytes& bytes, const Extras& extras) {
  Case<T> square;
  square.extras = extras;
  square.is_square = true;
  const AttentionShape shape = drawn_square(bytes);
  const auto seed = static_cast<std::uint64_t>(bytes(1, 255));
  Problem<T> problem = make_problem(square, shape, seed, drawn_fills(bytes, seed));
  if (bytes.once_in(3)) {
    for (Index b = 0; b < shape.batch; ++b) problem.key_lengths.push_back(bytes(0, shape.keys));
  }
  return problem;
}

/// What a whole call reads and writes, or a rank's rows of it.
template <class T>
struct DrawnCall {
  Problem<T> problem;
  Tensor<T> out, lse, near_out, d_out;
  Tensor<T> d_q, d_k, d_v, d_bias, d_beta, d_near, d_far, d_projection;
  std::vector<T> d_sink;

  /// Of the whole sequence.
  explicit DrawnCall(Problem<T> whole)
      : problem(std::move(whole)),
        out(problem.out_shape()),
        lse(problem.row_shape()),
        near_out(problem.out_shape()),
        d_out(problem.out_shape()),
        d_q(problem.q.shape()),
        d_k(problem.k.shape()),
        d_v(problem.v.shape()),
        d_bias(shape_of(problem.bias)),
        d_beta(shape_of(problem.beta)),
        d_near(shape_of(problem.near_logits)),
        d_far(shape_of(problem.far_logits)),
        d_projection(shape_of(problem.projection)),
        d_sink(problem.sink.size()) {
    d_out.fill(gaussian(problem.seed + 600));
  }

  /// Of this rank's rows, in memory that its own bytes choose.
  DrawnCall(const DrawnCall& whole, const Rows& rows, Bytes& own)
      : problem(part_of(whole.problem, rows, own)),
        out(own_part(whole.out, rows, drawn_layout(own))),
        lse(own_part(whole.lse, rows, drawn_layout(own))),
        near_out(own_part(whole.near_out, rows, drawn_layout(own))),
        d_out(own_part(whole.d_out, rows, drawn_input_layout(own))),
        d_q(own_part(whole.d_q, rows, drawn_layout(own))),
        d_k(own_part(whole.d_k, rows, drawn_layout(own))),
        d_v(own_part(whole.d_v, rows, drawn_layout(own))),
        d_bias(own_logits(whole.d_bias, rows, drawn_layout(own))),
        d_beta(own_part(whole.d_beta, rows, drawn_layout(own))),
        d_near(whole.d_near.in(drawn_layout(own))),
        d_far(whole.d_far.in(drawn_layout(own))),
        d_projection(whole.d_projection.in(drawn_layout(own))),
        d_sink(whole.d_sink.size(), T{77}) {
    for (const Tensor<T>* x : written()) x->fill(constant(77));
  }

  std::vector<const Tensor<T>*> written() const {
    return {&out,    &lse,    &near_out, &d_q,   &d_k,         &d_v,
            &d_bias, &d_beta, &d_near,   &d_far, &d_projection};
  }
  AllInputs<T> inputs() const { return problem.inputs(); }
  /// \param saves whether the near field of FMM attention is kept
  AllSaved<T> saved(bool saves) const {
    AllSaved<T> all{.lse = lse.view()};
    if (saves) {
      all.near_out = near_out.view();
      all.near_lse = lse.view();
    }
    return all;
  }

 private:
  template <class X>
  static Shape shape_of(const std::optional<Tensor<X>>& x) {
    return x ? x->shape() : Shape{};
  }
  static Problem<T> part_of(const Problem<T>& whole, const Rows& rows, Bytes& own) {
    Problem<T> part = whole.in({}, {}, {}, {});
    part.shape.queries = part.shape.keys = rows.own_count();
    part.q = own_part(whole.q, rows, drawn_input_layout(own));
    part.k = own_part(whole.k, rows, drawn_input_layout(own));
    part.v = own_part(whole.v, rows, drawn_input_layout(own));
    if (whole.bias) part.bias = own_logits(*whole.bias, rows, drawn_input_layout(own));
    if (whole.mask) part.mask = own_logits(*whole.mask, rows, drawn_input_layout(own));
    if (whole.beta) part.beta = own_part(*whole.beta, rows, drawn_input_layout(own));
    return part;
  }
};

/// Which gradients a call asks for, beside those of queries, keys and values.
struct DrawnWishes {
  bool backward = true;
  bool bias = true;
  bool sink = true;
  bool beta = true;
  bool logits = true;  // of the blend
};

/// \param q, k, v whether these are wanted
template <class T>
AllGrads<T> grads_of(DrawnCall<T>& call, const DrawnWishes& wishes, bool q, bool k, bool v) {
  AllGrads<T> all;
  const AllInputs<T> in = call.inputs();
  if (q) all.q = call.d_q.view();
  if (k) all.k = call.d_k.view();
  if (v) all.v = call.d_v.view();
  if (wishes.bias && !in.bias.is_none()) all.bias = call.d_bias.view();
  if (wishes.sink && !in.sink.empty()) all.sink = call.d_sink;
  if (wishes.beta && !in.beta.is_none()) all.beta = call.d_beta.view();
  if (wishes.logits && !in.near_logits.is_none()) all.near_logits = call.d_near.view();
  if (wishes.logits && !in.far_logits.is_none()) all.far_logits = call.d_far.view();
  if (!in.projection.is_none()) all.projection = call.d_projection.view();
  return all;
}

/// What has no rows, which every rank gets whole.
template <class T>
void expect_whole(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
  EXPECT_EQ(got.size(), want.size()) << what;
  EXPECT_TRUE(got.size() != want.size() || got.empty() ||
              std::memcmp(got.data(), want.data(), got.size() * sizeof(T)) == 0)
      << what;
}

template <class T>
void expect_gradients(const DrawnCall<T>& own, const DrawnCall<T>& whole, const AllGrads<T>& asked,
                      const Rows& rows) {
  if (!asked.bias.is_none()) expect_own_part(own.d_bias, whole.d_bias, rows, "d_bias");
  if (!asked.beta.is_none()) expect_own_part(own.d_beta, whole.d_beta, rows, "d_beta");
  if (!asked.sink.empty()) expect_whole(own.d_sink, whole.d_sink, "d_sink");
  if (!asked.near_logits.is_none()) {
    expect_whole(own.d_near.values(), whole.d_near.values(), "d_near_logits");
  }
  if (!asked.far_logits.is_none()) {
    expect_whole(own.d_far.values(), whole.d_far.values(), "d_far_logits");
  }
  if (!asked.projection.is_none()) {
    expect_whole(own.d_projection.values(), whole.d_projection.values(), "d_projection");
  }
}

/// Choices that are this rank's own.
inline std::vector<std::uint8_t> bytes_of_rank(std::uint64_t seed) {
  std::vector<std::uint8_t> bytes(256);
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    bytes[n] =
        static_cast<std::uint8_t>(hash(seed, all_ranks().rank(), static_cast<Index>(n), 0, 0));
  }
  return bytes;
}

/// Tensors that a family has beside those of DrawnCall: none.
struct NothingBeside {
  NothingBeside own_part(const Rows& /*rows*/, Bytes& /*own*/) const { return {}; }
  template <class Tensors>
  void put(Tensors& /*inputs_or_saved_or_grads*/) const {}
  void expect_saved(const NothingBeside& /*whole*/, const Rows& /*rows*/) const {}
  void expect_gradients(const NothingBeside& /*whole*/, const Rows& /*rows*/) const {}
};

/// Compares a call over ranks with one process. The passes over ranks are found by their arguments.
/// \param made of what the operator is   \param beside what its family has besides, of all rows
template <class Op, class T, class Beside = NothingBeside>
void try_over_ranks(const Op& op, Problem<T> problem, const DrawnWishes& wishes, Bytes& bytes,
                    const std::string& made = "", const Beside& beside = {}) {
  const AtLevel at(drawn_level(bytes));
  const bool saves = bytes.once_in(2);
  const auto saved_of = [&](const DrawnCall<T>& call, const Beside& more) {
    AllSaved<T> all = call.saved(saves);
    more.put(all);
    return fovea::SavedOf<Op, T>(all);
  };
  const auto in_of = [](const DrawnCall<T>& call, const Beside& more) {
    AllInputs<T> all = call.inputs();
    more.put(all);
    return fovea::InputsOf<Op, T>(all);
  };
  DrawnCall<T> whole(std::move(problem));
  op.forward(in_of(whole, beside), whole.out.view(), saved_of(whole, beside));
  if (wishes.backward) {
    AllGrads<T> grads = grads_of(whole, wishes, true, true, true);
    beside.put(grads);
    op.backward(in_of(whole, beside), View<const T>(whole.out.view()), saved_of(whole, beside),
                View<const T>(whole.d_out.view()), fovea::GradsOf<Op, T>(grads));
  }

  const Rows rows(all_ranks(), drawn_row_layout(bytes, whole.problem.shape.queries));
  SCOPED_TRACE(std::string(Op::name()) + made + " " + scalar_name<T>() + ": " +
               describe(whole.problem) + ", " + rows.layout().text());
  const std::vector<std::uint8_t> of_rank = bytes_of_rank(whole.problem.seed);
  Bytes own_bytes(of_rank);
  AnyExecutor executor = drawn_executor(own_bytes);
  DrawnCall<T> own(whole, rows, own_bytes);
  const Beside own_beside = beside.own_part(rows, own_bytes);
  const auto own_saved = saved_of(own, own_beside);
  forward(op, in_of(own, own_beside), own.out.view(), own_saved, rows, executor);
  expect_own_part(own.out, whole.out, rows, "out");
  if constexpr (requires { own_saved.lse; }) expect_own_part(own.lse, whole.lse, rows, "lse");
  own_beside.expect_saved(beside, rows);
  if constexpr (requires { own_saved.near_out; }) {
    if (saves) {
      expect_own_part(own.near_out, whole.near_out, rows, "near_out");
      expect_own_part(own.lse, whole.lse, rows, "near_lse");
    }
  }
  if (!wishes.backward) return;
  const bool wants_q = !own_bytes.once_in(4);
  const bool wants_k = !own_bytes.once_in(4);
  const bool wants_v = !own_bytes.once_in(4);
  AllGrads<T> asked = grads_of(own, wishes, wants_q, wants_k, wants_v);
  own_beside.put(asked);
  backward(op, in_of(own, own_beside), View<const T>(own.out.view()), own_saved,
           View<const T>(own.d_out.view()), fovea::GradsOf<Op, T>(asked), rows, executor);
  expect_if_wanted(wants_q, own.d_q, whole.d_q, rows, "d_q");
  expect_if_wanted(wants_k, own.d_k, whole.d_k, rows, "d_k");
  expect_if_wanted(wants_v, own.d_v, whole.d_v, rows, "d_v");
  expect_gradients(own, whole, asked, rows);
  own_beside.expect_gradients(beside, rows);
  for (const Tensor<T>* x : own.written()) EXPECT_EQ(x->changed_gaps(), 0);
}

/// Calls trial(bytes) as each_drawn does, until it fails on one of the ranks.
template <class Trial>
void each_drawn_over_ranks(long count, std::uint64_t seed, Trial&& trial) {
  int failed = 0;
  each_drawn(count, seed, [&](std::span<const std::uint8_t> data) {
    if (failed != 0) return;
    trial(data);
    failed = testing::Test::HasFailure() ? 1 : 0;
    MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, all_ranks().mpi());
  });
}

}  // namespace fovea_test
