// SPDX-License-Identifier: MIT
/// \file
/// Calls over ranks as bytes choose them, of operators whose tensors are listed one by one: what
/// becomes of each, and which part of it a rank has.
#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include "distributed/drawn_call.hpp"

namespace fovea_test {

/// What a call does with a tensor.
enum class Role {
  none,  // it is not given
  read,
  made,  // by the forward pass
  kept,  // likewise; the backward pass reads it, or makes it again
  gradient
};

/// Which part of a tensor a rank has.
enum class Held {
  rows,
  columns,  // that its rows meet
  blocks,   // rows that belong to blocks of the sequence
  whole,
  numbers  // all of them, one behind the other
};

/// The two calls that are compared.
enum class Where { one_process, ranks };

/// A tensor of a call of one process, and what this rank has of it in a call over ranks.
template <class T>
struct SpreadTensor {
  const char* name;
  Role role;
  Held held;
  Tensor<T> whole;  // of columns the transpose, whose rows are spread
  Tensor<T> own{};
  bool is_alike = false;  // whether all ranks want it or none does
  bool is_wanted = true;  // by this rank, if it is written

  bool is_spread() const { return held != Held::whole && held != Held::numbers; }

  /// Gives this rank its part, in memory that its own bytes choose.
  void spread(const Rows& rows, Bytes& bytes) {
    Layout layout;
    if (held != Held::numbers) {
      layout = role == Role::read ? drawn_input_layout(bytes) : drawn_layout(bytes);
    }
    own = is_spread() ? own_part(whole, rows, layout) : whole.in(layout);
    if (role != Role::read) own.fill(constant(77));
  }

  /// The tensor as a call takes it, which is none if this rank does not want it.
  View<T> in(Where where) const {
    if (role == Role::none) return {};
    if (where == Where::ranks && !is_wanted) return {};
    const View<T> x = (where == Where::ranks ? own : whole).view();
    if (held != Held::columns) return x;
    const auto turned = [](const Shape& s) { return Shape{s[0], s[1], s[3], s[2]}; };
    return View<T>(x.data(), turned(x.shape()), turned(x.strides()));
  }
  /// The same of numbers.
  std::span<T> numbers_in(Where where) const {
    const View<T> x = in(where);
    return {x.data(), as_size(x.size())};
  }

  /// Expects the bits of one process, and that nothing else was written.
  void expect_bits(const Rows& rows) const {
    if (is_spread()) {
      expect_if_wanted(is_wanted, own, whole, rows, name);
    } else if (is_wanted) {
      expect_whole(own.values(), whole.values(), name);
    } else {
      for (const T x : own.values()) EXPECT_EQ(x, 77) << name;
    }
    EXPECT_EQ(own.changed_gaps(), 0) << name;
  }
};

/// Sizes of a sequence that attends to itself, and which tokens of it are there.
struct DrawnSequence {
  AttentionShape shape;
  std::vector<Index> lengths = {};
  std::uint64_t seed = 1;

  /// \param multiple of which the tokens are that many   \param longest how many there may be
  DrawnSequence(Bytes& bytes, Index multiple, Index longest)
      : shape(drawn_square(bytes)), seed(static_cast<std::uint64_t>(bytes(1, 65535))) {
    if (bytes.once_in(8)) {
      shape.queries = bytes(1500, longest);
      shape.batch = 1;
      shape.query_heads = bytes(1, 2);
      shape.key_heads = 1;
    }
    if (bytes.once_in(40)) shape.batch = 0;
    const Index most = shape.queries / multiple + (bytes.once_in(2) ? 1 : 0);
    shape.queries = shape.keys = most * multiple;
    if (!bytes.once_in(3)) return;
    for (Index b = 0; b < shape.batch; ++b) lengths.push_back(bytes(0, most) * multiple);
  }

  Shape of_queries(Index width) const {
    return {shape.batch, shape.query_heads, shape.queries, width};
  }
  Shape of_keys(Index width) const { return {shape.batch, shape.key_heads, shape.keys, width}; }
  std::string text() const {
    std::ostringstream text;
    text << "B " << shape.batch << ", Hq " << shape.query_heads << ", Hk " << shape.key_heads
         << ", N " << shape.queries << ", D " << shape.width << ", Dv " << shape.value_width
         << ", seed " << seed;
    for (const Index length : lengths) text << ", length " << length;
    return text.str();
  }
};

inline std::optional<double> drawn_scale(Bytes& bytes) {
  if (!bytes.once_in(3)) return {};
  return static_cast<double>(bytes(-20, 20)) / 10;
}

/// The tensors of a call. An operator's own calls add theirs, and make of them inputs(where),
/// saved(where) and grads(where).
template <class T>
class SpreadCall {
 public:
  using Scalar = T;

  /// \param s of the sequence   \param q_shape, k_shape of queries and keys   \param of_q, of_k
  /// which part of them a rank has
  SpreadCall(const DrawnSequence& s, const Fills& fills, const Shape& q_shape, Held of_q,
             const Shape& k_shape, Held of_k)
      : sequence(s),
        q(add("q", Role::read, of_q, q_shape, fills.q)),
        k(add("k", Role::read, of_k, k_shape, fills.k)),
        v(add("v", Role::read, of_k, with(k_shape, s.shape.value_width), fills.v)),
        d_out(add("d_out", Role::read, of_q, with(q_shape, s.shape.value_width),
                  gaussian(s.seed + 600))),
        out(add("out", Role::made, of_q, d_out.whole.shape())),
        lse(add("lse", Role::made, of_q, with(q_shape, 1))),
        d_q(add("d_q", Role::gradient, of_q, q.whole.shape())),
        d_k(add("d_k", Role::gradient, of_k, k.whole.shape())),
        d_v(add("d_v", Role::gradient, of_k, v.whole.shape())) {}
  /// Of a sequence that attends to itself.
  SpreadCall(const DrawnSequence& s, const Fills& fills)
      : SpreadCall(s, fills, s.of_queries(s.shape.width), Held::rows, s.of_keys(s.shape.width),
                   Held::rows) {}
  SpreadCall(const SpreadCall&) = delete;
  SpreadCall& operator=(const SpreadCall&) = delete;

  SpreadTensor<T>& add(const char* name, Role role, Held held, const Shape& shape,
                       const Fill& fill = {}) {
    tensors.push_back({name, role, held, Tensor<T>(shape)});
    if (fill) tensors.back().whole.fill(fill);
    return tensors.back();
  }

  std::deque<SpreadTensor<T>> tensors;
  DrawnSequence sequence;
  SpreadTensor<T>&q, &k, &v, &d_out, &out, &lse, &d_q, &d_k, &d_v;

 private:
  static Shape with(Shape shape, Index width) {
    shape[3] = width;
    return shape;
  }
};

/// Compares a call over ranks with one process. The passes over ranks are found by their arguments.
/// \param made of what the operator is   \param call a SpreadCall of the operator
/// \param are_alike whether all ranks want the same tensors
/// \param layout of rows   \param blocks of rows that belong to blocks
template <class Op, class Call>
void try_spread(const Op& op, const std::string& made, Call& call, bool are_alike,
                const RowLayout& layout, const RowLayout& blocks, Bytes& bytes) {
  using T = typename Call::Scalar;
  const AtLevel at(drawn_level(bytes));
  const auto forward_in = [&](Where where, auto&&... more) {
    if constexpr (sizeof...(more) == 0) {
      op.forward(call.inputs(where), call.out.in(where), call.saved(where));
    } else {
      forward(op, call.inputs(where), call.out.in(where), call.saved(where), more...);
    }
  };
  const auto backward_in = [&](Where where, auto&&... more) {
    const View<const T> out(call.out.in(where));
    const View<const T> d_out(call.d_out.in(where));
    if constexpr (sizeof...(more) == 0) {
      op.backward(call.inputs(where), out, call.saved(where), d_out, call.grads(where));
    } else {
      backward(op, call.inputs(where), out, call.saved(where), d_out, call.grads(where), more...);
    }
  };
  const bool has_backward = !bytes.once_in(3);
  const bool keeps = bytes.once_in(2);
  forward_in(Where::one_process);
  if (has_backward) backward_in(Where::one_process);

  const Rows rows(all_ranks(), layout);
  const Rows rows_of_blocks(all_ranks(), blocks);
  SCOPED_TRACE(std::string(Op::name()) + made + " " + scalar_name<T>() + ": " +
               call.sequence.text() + ", " + layout.text());
  const std::vector<std::uint8_t> of_rank = bytes_of_rank(call.sequence.seed);
  Bytes own(of_rank);
  AnyExecutor executor = drawn_executor(own);
  const auto rows_of = [&](const SpreadTensor<T>& x) -> const Rows& {
    return x.held == Held::blocks ? rows_of_blocks : rows;
  };
  for (SpreadTensor<T>& x : call.tensors) {
    x.spread(rows_of(x), own);
    Bytes& wishes = are_alike || x.is_alike ? bytes : own;
    const bool is_free = x.role == Role::gradient || (&x == &call.lse && !has_backward);
    if (is_free) x.is_wanted = !wishes.once_in(4);
    if (x.role == Role::kept) x.is_wanted = keeps || (wishes.once_in(2) && !are_alike);
  }
  const auto expect = [&](Role role) {
    for (const SpreadTensor<T>& x : call.tensors) {
      if (x.role == role) x.expect_bits(rows_of(x));
    }
  };
  forward_in(Where::ranks, rows, executor);
  expect(Role::made);
  expect(Role::kept);
  if (!has_backward) return;
  for (SpreadTensor<T>& x : call.tensors) {
    if (x.role == Role::kept) x.is_wanted = keeps;
  }
  backward_in(Where::ranks, rows, executor);
  expect(Role::gradient);
}

}  // namespace fovea_test
