// SPDX-License-Identifier: MIT
/// \file
/// Distributed calls that are compared with one process: the use of each tensor, each rank's part
/// of it, and its memory layout, which bytes choose.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <concepts>
#include <initializer_list>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "distributed/drawn_ranks.hpp"
#include "fovea/distributed/row_layout.hpp"

namespace fovea_test {

/// How a call uses a tensor.
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
  columns,  // for its rows
  blocks,   // rows that belong to blocks of the sequence
  whole,
  numbers  // all of them, concatenated
};

/// The two calls that are compared.
enum class Where { one_process, ranks };

/// Tensors without rows, which are complete on every rank.
template <class T>
void expect_whole(const std::vector<T>& got, const std::vector<T>& want, const char* what) {
  EXPECT_EQ(got.size(), want.size()) << what;
  EXPECT_TRUE(got.size() != want.size() || got.empty() ||
              std::memcmp(got.data(), want.data(), got.size() * sizeof(T)) == 0)
      << what;
}

/// A tensor of numbers of any type.
struct AnyShardedTensor {
  const char* name;
  Role role;
  Held held;
  bool is_alike = false;  // whether all ranks want it or none does
  bool is_due = false;    // whether all ranks must want it
  bool has_dense_rows = false;
  bool is_wanted = true;  // by this rank, if it is written

  AnyShardedTensor(const char* its_name, Role its_role, Held its_part)
      : name(its_name), role(its_role), held(its_part) {}
  AnyShardedTensor(const AnyShardedTensor&) = delete;
  AnyShardedTensor& operator=(const AnyShardedTensor&) = delete;
  virtual ~AnyShardedTensor() = default;

  /// Gives this rank its part, in memory that its own bytes choose.
  virtual void sharded(const Sharding& rows, Bytes& bytes) = 0;
  /// Expects the bits of one process, and that nothing else was written.
  virtual void expect_bits(const Sharding& rows) const = 0;
  /// Expects that nothing was written.
  virtual void expect_untouched() const = 0;
  /// Makes this rank's part one longer in a dimension, until it is taken back.
  virtual void lengthen(std::size_t dimension) = 0;
  virtual void take_back() = 0;
};

/// A tensor of a call of one process, and what this rank has of it in a call over ranks.
template <class T>
struct ShardedTensor final : AnyShardedTensor {
  Tensor<T> whole;  // of columns the transpose, whose rows are spread
  Tensor<T> own{};

  ShardedTensor(const char* its_name, Role its_role, Held its_part, const Shape& shape)
      : AnyShardedTensor(its_name, its_role, its_part), whole(shape) {}

  void sharded(const Sharding& rows, Bytes& bytes) override {
    Layout layout;
    if (held != Held::numbers) {
      layout = role == Role::read ? drawn_input_layout(bytes) : drawn_layout(bytes);
    }
    if (has_dense_rows) {
      layout = {.offset = layout.offset, .gap = layout.gap, .guard = layout.guard};
      if (bytes.once_in(2)) layout.order = {2, 1, 0, 3};
    }
    own = is_sharded(rows) ? own_part(whole, rows, layout) : whole.in(layout);
    if (role != Role::read) own.fill(constant(77));
  }

  /// The tensor for a call; empty if this rank does not request it.
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

  void expect_bits(const Sharding& rows) const override {
    if constexpr (!std::same_as<T, bool>) {  // masks are read
      if (!is_wanted) {
        expect_untouched();
      } else if (is_sharded(rows)) {
        expect_own_part(own, whole, rows, name);
      } else {
        expect_whole(own.values(), whole.values(), name);
      }
    }
    EXPECT_EQ(own.changed_gaps(), 0) << name;
  }
  void expect_untouched() const override {
    for (const T x : own.values()) EXPECT_EQ(x, static_cast<T>(77)) << name;
  }

  void lengthen(std::size_t dimension) override {
    Shape shape = own.shape();
    ++shape[dimension];
    Tensor<T> longer(shape);
    longer.fill(constant(1));
    kept_ = std::exchange(own, std::move(longer));
    was_wanted_ = std::exchange(is_wanted, true);
  }
  void take_back() override {
    own = std::move(kept_);
    is_wanted = was_wanted_;
  }

 private:
  bool is_sharded(const Sharding& rows) const {
    if (held == Held::logits) return whole.shape()[2] != 1 || rows.count() == 1;
    return held != Held::whole && held != Held::numbers;
  }

  Tensor<T> kept_{};  // while `own` is longer
  bool was_wanted_ = true;
};

/// A layout of rows, and that of the blocks of rows which some tensors have rows for.
struct CallRows {
  CallRows(const RowLayout& layout, Index rows_of_block)
      : rows(all_ranks(), layout),
        blocks(all_ranks(), fovea::distributed::blocks_of(layout, rows_of_block)) {}

  const Sharding& of(const AnyShardedTensor& x) const {
    return x.held == Held::blocks ? blocks : rows;
  }

  const Sharding rows, blocks;
};

/// Sizes of a sequence that attends to itself: short ones of all widths, or long ones.
inline AttentionShape drawn_square(Bytes& bytes) {
  AttentionShape s = drawn_shape(bytes);
  s.queries = s.keys = bytes.once_in(6) ? bytes(400, 1500) : std::max(s.queries, s.keys);
  if (s.queries >= 400) s.batch = 1;
  return s;
}

/// Sizes of such a sequence, its key lengths, and the positions of its rows.
struct SquareSequence {
  AttentionShape shape;
  std::vector<Index> lengths = {};
  std::vector<Index> first_positions = {};
  std::uint64_t seed = 1;

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

/// Sizes that a test chooses. \param rows of queries and keys
inline SquareSequence square(Index batch, Index query_heads, Index key_heads, Index rows,
                             std::vector<Index> lengths = {}) {
  return {{batch, query_heads, key_heads, rows, rows, 5, 7}, std::move(lengths)};
}

/// Sizes that bytes choose.
struct DrawnSequence : SquareSequence {
  /// \param multiple of which the tokens are that many   \param longest how many there may be
  DrawnSequence(Bytes& bytes, Index multiple, Index longest) {
    shape = drawn_square(bytes);
    seed = static_cast<std::uint64_t>(bytes(1, 65535));
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
};

/// A tensor that is read, if it is given.
inline Role read_if(bool is_given) { return is_given ? Role::read : Role::none; }
/// The gradient of one.
inline Role gradient_if(bool is_asked_for) { return is_asked_for ? Role::gradient : Role::none; }

/// The tensors of a call, whose queries and keys have numbers of T.
template <class T>
class ShardedTensors {
 public:
  using Scalar = T;

  explicit ShardedTensors(const SquareSequence& s) : sequence(s) {}
  ShardedTensors(const ShardedTensors&) = delete;
  ShardedTensors& operator=(const ShardedTensors&) = delete;

  template <class X = fovea::Compute<T>>
  ShardedTensor<X>& add(const char* name, Role role, Held held, const Shape& shape,
                        const Fill& fill = {}) {
    auto made = std::make_unique<ShardedTensor<X>>(name, role, held, shape);
    ShardedTensor<X>& added = *made;
    if (fill) added.whole.fill(fill);
    tensors.push_back(std::move(made));
    return added;
  }

  /// The tensor of that name that is given, or null.
  const AnyShardedTensor* named(const std::string& name) const {
    for (const auto& x : tensors) {
      if (x->role != Role::none && x->name == name) return x.get();
    }
    return nullptr;
  }

  /// Expects of those in a role the bits of one process.
  void expect_bits(Role role, const CallRows& rows) const {
    for (const auto& x : tensors) {
      if (x->role == role) x->expect_bits(rows.of(*x));
    }
  }
  /// Expects that this rank's tensors in these roles were not written.
  void expect_untouched(std::initializer_list<Role> roles = {Role::made, Role::kept,
                                                             Role::gradient}) const {
    for (const auto& x : tensors) {
      if (std::ranges::find(roles, x->role) != roles.end()) x->expect_untouched();
    }
  }

  std::vector<std::unique_ptr<AnyShardedTensor>> tensors;
  SquareSequence sequence;
  Index rows_of_block = 1;  // for those that are Held::blocks
};

/// The tensors of attention.
template <class T>
class ShardedCall : public ShardedTensors<T> {
 public:
  /// \param s of the sequence   \param q_shape, k_shape of queries and keys   \param of_q, of_k
  /// which part of them a rank has
  ShardedCall(const SquareSequence& s, const Fills& fills, const Shape& q_shape, Held of_q,
              const Shape& k_shape, Held of_k)
      : ShardedTensors<T>(s),
        q(this->template add<T>("q", Role::read, of_q, q_shape, fills.q)),
        k(this->template add<T>("k", Role::read, of_k, k_shape, fills.k)),
        v(this->template add<T>("v", Role::read, of_k, with(k_shape, s.shape.value_width),
                                fills.v)),
        d_out(this->template add<T>("d_out", Role::read, of_q, with(q_shape, s.shape.value_width),
                                    gaussian(s.seed + 600))),
        out(this->template add<T>("out", Role::made, of_q, d_out.whole.shape())),
        lse(this->add("lse", Role::made, of_q, with(q_shape, 1))),
        d_lse(this->add("d_lse", Role::none, of_q, lse.whole.shape(), gaussian(s.seed + 650))),
        d_q(this->template add<T>("d_q", Role::gradient, of_q, q.whole.shape())),
        d_k(this->template add<T>("d_k", Role::gradient, of_k, k.whole.shape())),
        d_v(this->template add<T>("d_v", Role::gradient, of_k, v.whole.shape())) {}
  /// Of a sequence that attends to itself.
  ShardedCall(const SquareSequence& s, const Fills& fills)
      : ShardedCall(s, fills, s.of_queries(s.shape.width), Held::rows, s.of_keys(s.shape.width),
                    Held::rows) {}

  ShardedTensor<T>&q, &k, &v, &d_out, &out;
  ShardedTensor<fovea::Compute<T>>&lse, &d_lse;  // d_lse is read if it is given
  ShardedTensor<T>&d_q, &d_k, &d_v;

 private:
  static Shape with(Shape shape, Index width) {
    shape[3] = width;
    return shape;
  }
};

}  // namespace fovea_test
