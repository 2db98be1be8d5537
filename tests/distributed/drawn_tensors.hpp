// SPDX-License-Identifier: MIT
/// \file
/// Calls over ranks as bytes choose them: what becomes of each tensor, which part of it a rank has,
/// and where that lies in memory.
#pragma once

#include <gtest/gtest.h>

#include <concepts>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "distributed/drawn_ranks.hpp"

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
  logits,   // likewise, unless there is one row for all
  columns,  // that its rows meet
  blocks,   // rows that belong to blocks of the sequence
  whole,
  numbers  // all of them, one behind the other
};

/// The two calls that are compared.
enum class Where { one_process, ranks };

/// What has no rows, which every rank gets whole.
template <class T>
void expect_whole(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
  EXPECT_EQ(got.size(), want.size()) << what;
  EXPECT_TRUE(got.size() != want.size() || got.empty() ||
              std::memcmp(got.data(), want.data(), got.size() * sizeof(T)) == 0)
      << what;
}

/// A tensor of numbers of any type.
struct AnySpreadTensor {
  const char* name;
  Role role;
  Held held;
  bool is_alike = false;  // whether all ranks want it or none does
  bool is_wanted = true;  // by this rank, if it is written

  AnySpreadTensor(const char* its_name, Role its_role, Held its_part)
      : name(its_name), role(its_role), held(its_part) {}
  AnySpreadTensor(const AnySpreadTensor&) = delete;
  AnySpreadTensor& operator=(const AnySpreadTensor&) = delete;
  virtual ~AnySpreadTensor() = default;

  /// Gives this rank its part, in memory that its own bytes choose.
  virtual void spread(const Rows& rows, Bytes& bytes) = 0;
  /// Expects the bits of one process, and that nothing else was written.
  virtual void expect_bits(const Rows& rows) const = 0;
};

/// A tensor of a call of one process, and what this rank has of it in a call over ranks.
template <class T>
struct SpreadTensor final : AnySpreadTensor {
  Tensor<T> whole;  // of columns the transpose, whose rows are spread
  Tensor<T> own{};

  SpreadTensor(const char* its_name, Role its_role, Held its_part, const Shape& shape)
      : AnySpreadTensor(its_name, its_role, its_part), whole(shape) {}

  void spread(const Rows& rows, Bytes& bytes) override {
    Layout layout;
    if (held != Held::numbers) {
      layout = role == Role::read ? drawn_input_layout(bytes) : drawn_layout(bytes);
    }
    own = is_spread(rows) ? own_part(whole, rows, layout) : whole.in(layout);
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

  void expect_bits(const Rows& rows) const override {
    if constexpr (!std::same_as<T, bool>) {  // masks are read
      if (!is_wanted) {
        for (const T x : own.values()) EXPECT_EQ(x, static_cast<T>(77)) << name;
      } else if (is_spread(rows)) {
        expect_own_part(own, whole, rows, name);
      } else {
        expect_whole(own.values(), whole.values(), name);
      }
    }
    EXPECT_EQ(own.changed_gaps(), 0) << name;
  }

 private:
  bool is_spread(const Rows& rows) const {
    if (held == Held::logits) return whole.shape()[2] != 1 || rows.count() == 1;
    return held != Held::whole && held != Held::numbers;
  }
};

/// Sizes of a sequence that attends to itself: short ones of all widths, or long ones.
inline AttentionShape drawn_square(Bytes& bytes) {
  AttentionShape s = drawn_shape(bytes);
  s.queries = s.keys = bytes.once_in(6) ? bytes(400, 1500) : std::max(s.queries, s.keys);
  if (s.queries >= 400) s.batch = 1;
  return s;
}

/// Sizes of such a sequence, and which tokens of it are there.
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

/// A tensor that is read, if it is given.
inline Role read_if(bool is_given) { return is_given ? Role::read : Role::none; }
/// The gradient of one.
inline Role gradient_if(bool is_asked_for) { return is_asked_for ? Role::gradient : Role::none; }

/// The tensors of a call, whose queries and keys have numbers of T.
template <class T>
class SpreadTensors {
 public:
  using Scalar = T;

  explicit SpreadTensors(const DrawnSequence& s) : sequence(s) {}
  SpreadTensors(const SpreadTensors&) = delete;
  SpreadTensors& operator=(const SpreadTensors&) = delete;

  template <class X = fovea::Compute<T>>
  SpreadTensor<X>& add(const char* name, Role role, Held held, const Shape& shape,
                       const Fill& fill = {}) {
    auto made = std::make_unique<SpreadTensor<X>>(name, role, held, shape);
    SpreadTensor<X>& added = *made;
    if (fill) added.whole.fill(fill);
    tensors.push_back(std::move(made));
    return added;
  }

  std::vector<std::unique_ptr<AnySpreadTensor>> tensors;
  DrawnSequence sequence;
};

/// Those of attention. An operator's own calls add theirs, and make of them inputs(where),
/// saved(where) and grads(where).
template <class T>
class SpreadCall : public SpreadTensors<T> {
 public:
  /// \param s of the sequence   \param q_shape, k_shape of queries and keys   \param of_q, of_k
  /// which part of them a rank has
  SpreadCall(const DrawnSequence& s, const Fills& fills, const Shape& q_shape, Held of_q,
             const Shape& k_shape, Held of_k)
      : SpreadTensors<T>(s),
        q(this->template add<T>("q", Role::read, of_q, q_shape, fills.q)),
        k(this->template add<T>("k", Role::read, of_k, k_shape, fills.k)),
        v(this->template add<T>("v", Role::read, of_k, with(k_shape, s.shape.value_width),
                                fills.v)),
        d_out(this->template add<T>("d_out", Role::read, of_q, with(q_shape, s.shape.value_width),
                                    gaussian(s.seed + 600))),
        out(this->template add<T>("out", Role::made, of_q, d_out.whole.shape())),
        lse(this->add("lse", Role::made, of_q, with(q_shape, 1))),
        d_q(this->template add<T>("d_q", Role::gradient, of_q, q.whole.shape())),
        d_k(this->template add<T>("d_k", Role::gradient, of_k, k.whole.shape())),
        d_v(this->template add<T>("d_v", Role::gradient, of_k, v.whole.shape())) {}
  /// Of a sequence that attends to itself.
  SpreadCall(const DrawnSequence& s, const Fills& fills)
      : SpreadCall(s, fills, s.of_queries(s.shape.width), Held::rows, s.of_keys(s.shape.width),
                   Held::rows) {}

  /// What all operators read, save and may give.
  AllInputs<T> inputs(Where where) const {
    return {q.in(where), k.in(where), v.in(where), this->sequence.lengths};
  }
  AllSaved<T> saved(Where where) const { return {lse.in(where)}; }
  AllGrads<T> grads(Where where) const { return {d_q.in(where), d_k.in(where), d_v.in(where)}; }

  SpreadTensor<T>&q, &k, &v, &d_out, &out;
  SpreadTensor<fovea::Compute<T>>& lse;
  SpreadTensor<T>&d_q, &d_k, &d_v;

 private:
  static Shape with(Shape shape, Index width) {
    shape[3] = width;
    return shape;
  }
};

/// Calls f(number) with one of the types of numbers.
template <class F>
void with_drawn_scalar(Bytes& bytes, const F& f) {
  bytes.once_in(2) ? f(double{}) : f(float{});
}

/// What is done with a call's tensors.
struct Passes {
  bool has_backward = true;
  bool keeps = true;      // whether the forward pass keeps what the backward pass may make again
  bool is_alike = false;  // whether all ranks want the same tensors
};

/// Which of them this rank wants, and where they lie.
template <class T, class RowsOf>
void spread_tensors(SpreadTensors<T>& call, const Passes& passes, const AnySpreadTensor* lse,
                    const RowsOf& rows_of, Bytes& bytes, Bytes& own) {
  for (const auto& x : call.tensors) {
    x->spread(rows_of(*x), own);
    Bytes& wishes = passes.is_alike || x->is_alike ? bytes : own;
    const bool is_free = x->role == Role::gradient || (x.get() == lse && !passes.has_backward);
    if (is_free) x->is_wanted = !wishes.once_in(4);
    if (x->role != Role::kept) continue;
    x->is_wanted = passes.keeps || (wishes.once_in(2) && !passes.is_alike);
  }
}

/// Compares a call over ranks with one process.
/// \param what the call is   \param lse the tensor that is not wanted without a backward pass, or
/// null   \param layout of rows   \param blocks of rows that belong to blocks
/// \param forward, backward called as forward(where), or as forward(where, rows, executor)
template <class T, class Forward, class Backward>
void compare_spread(const std::string& what, SpreadTensors<T>& call, const Passes& passes,
                    const AnySpreadTensor* lse, const RowLayout& layout, const RowLayout& blocks,
                    Bytes& bytes, const Forward& forward, const Backward& backward) {
  const IsaLevel level = drawn_level(bytes);
  {
    const AtLevel at(level);
    forward(Where::one_process);
    if (passes.has_backward) backward(Where::one_process);
  }
  const Rows rows(all_ranks(), layout);
  const Rows rows_of_blocks(all_ranks(), blocks);
  SCOPED_TRACE(what + " " + scalar_name<T>() + ": " + call.sequence.text() + ", " + layout.text());
  const std::vector<std::uint8_t> of_rank = bytes_of_rank(call.sequence.seed);
  Bytes own(of_rank);
  const AtLevel at(drawn_level_like(level, own));
  AnyExecutor executor = drawn_executor(own);
  const auto rows_of = [&](const AnySpreadTensor& x) -> const Rows& {
    return x.held == Held::blocks ? rows_of_blocks : rows;
  };
  spread_tensors(call, passes, lse, rows_of, bytes, own);
  const auto expect = [&](Role role) {
    for (const auto& x : call.tensors) {
      if (x->role == role) x->expect_bits(rows_of(*x));
    }
  };
  forward(Where::ranks, rows, executor);
  expect(Role::made);
  expect(Role::kept);
  if (!passes.has_backward) return;
  for (const auto& x : call.tensors) {
    if (x->role == Role::kept) x->is_wanted = passes.keeps;
  }
  backward(Where::ranks, rows, executor);
  expect(Role::gradient);
}

/// The same for attention, whose passes over ranks are found by their arguments. Tensors of 16 bits
/// have no backward pass.
/// \param made of what the operator is   \param call a SpreadCall of the operator
/// \param are_alike whether all ranks want the same tensors
template <class Op, class Call>
void try_spread(const Op& op, const std::string& made, Call& call, bool are_alike,
                const RowLayout& layout, const RowLayout& blocks, Bytes& bytes) {
  using T = typename Call::Scalar;
  const auto inputs = [&](Where where) { return fovea::InputsOf<Op, T>(call.inputs(where)); };
  const auto saved = [&](Where where) { return fovea::SavedOf<Op, T>(call.saved(where)); };
  const auto forward_in = [&](Where where, auto&&... more) {
    if constexpr (sizeof...(more) == 0) {
      op.forward(inputs(where), call.out.in(where), saved(where));
    } else {
      forward(op, inputs(where), call.out.in(where), saved(where), more...);
    }
  };
  const auto backward_in = [&](Where where, auto&&... more) {
    if constexpr (std::floating_point<T>) {
      const fovea::GradsOf<Op, T> grads(call.grads(where));
      const View<const T> out(call.out.in(where));
      const View<const T> d_out(call.d_out.in(where));
      if constexpr (sizeof...(more) == 0) {
        op.backward(inputs(where), out, saved(where), d_out, grads);
      } else {
        backward(op, inputs(where), out, saved(where), d_out, grads, more...);
      }
    }
  };
  Passes passes;
  passes.has_backward = !bytes.once_in(3) && std::floating_point<T>;
  passes.keeps = bytes.once_in(2);
  passes.is_alike = are_alike;
  compare_spread(std::string(Op::name()) + made, call, passes, &call.lse, layout, blocks, bytes,
                 forward_in, backward_in);
}

}  // namespace fovea_test
