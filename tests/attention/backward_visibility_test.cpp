// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED SHARDS 4)
/// \file
/// Gradients of every operator: invisible inputs have gradients of +0 and no effect; visible NaN
/// and infinities reach the gradients that they contribute to and no others.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/poisons.hpp"

namespace fovea_test::attention_backward_visibility {

class GradientVisibility : public Conformance {};

/// A problem, and which pairs of a batch and head are visible.
template <class T>
struct Seen {
  const Case<T>& op;
  const Problem<T>& problem;
  AttentionShape shape = problem.shape;
  std::vector<bool> pairs = {};

  Seen(const Case<T>& any, const Problem<T>& p) : op(any), problem(p) {
    for_each_index({shape.batch, shape.query_heads, shape.queries, shape.keys},
                   [&](Index b, Index h, Index i, Index j) {
                     pairs.push_back(sees(op, problem, b, h, i, j));
                   });
  }

  bool pair(Index b, Index h, Index i, Index j) const {
    return pairs[place_of({shape.batch, shape.query_heads, shape.queries, shape.keys}, b, h, i, j)];
  }
  bool any_key(Index b, Index h, Index i) const {
    for (Index j = 0; j < shape.keys; ++j) {
      if (pair(b, h, i, j)) return true;
    }
    return false;
  }
  /// Whether a query of the group of key head g sees key j.
  bool any_query(Index b, Index g, Index j) const {
    const Index group = shape.query_heads / shape.key_heads;
    for (Index h = g * group; h < (g + 1) * group; ++h) {
      for (Index i = 0; i < shape.queries; ++i) {
        if (pair(b, h, i, j)) return true;
      }
    }
    return false;
  }
};

template <class T>
bool is_positive_zero(const T* row, Index count) {
  const std::vector<T> zeros(as_size(count));
  return static_cast<bool>(same_bits(row, zeros.data(), zeros.size(), {1, 1, 1, count}));
}

/// Grouped heads with lengths that leave keys unseen, and rows.
template <class T>
Problem<T> problem_with_hidden_data(const Case<T>& op, Index queries, Index keys) {
  Problem<T> problem = make_problem(op, {3, 2, 1, queries, keys, 3, 4});
  problem.key_lengths = {0, keys / 2, keys};
  return problem;
}

TEST_P(GradientVisibility, GradientsOfInvisibleInputsAreZero) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const auto& [queries, keys] :
         {std::array<Index, 2>{37, 41}, {70, 30}, {20, 150}, {1, 1}, {140, 200}}) {
      const Problem<T> problem = problem_with_hidden_data(op, queries, keys);
      SCOPED_TRACE(describe(problem));
      const Seen<T> seen(op, problem);
      const Gradients<T> got = run_backward(op, problem);
      for_each_index(problem.row_shape(), [&](Index b, Index h, Index i, Index) {
        if (seen.any_key(b, h, i)) return;
        EXPECT_TRUE(is_positive_zero(got.q_row(b, h, i), 3)) << "row " << i << " of q";
      });
      for_each_index({3, 1, problem.shape.keys, 1}, [&](Index b, Index g, Index j, Index) {
        if (seen.any_query(b, g, j)) return;
        EXPECT_TRUE(is_positive_zero(got.k_row(b, g, j), 3)) << "row " << j << " of k";
        EXPECT_TRUE(is_positive_zero(got.v_row(b, g, j), 4)) << "row " << j << " of v";
      });
      if (!problem.bias) continue;
      std::vector<bool> used(got.bias.size());
      const View<const T> bias = problem.bias->view();
      const Shape logits = {3, 2, problem.shape.queries, problem.shape.keys};
      for_each_index(logits, [&](Index b, Index h, Index i, Index j) {
        const Shape at = broadcast_index(bias, {b, h, i, j});
        if (seen.pair(b, h, i, j)) used[place_of(bias.shape(), at[0], at[1], at[2], at[3])] = true;
      });
      for (std::size_t n = 0; n < used.size(); ++n) {
        EXPECT_TRUE(used[n] || is_positive_zero(&got.bias[n], 1)) << "element " << n;
      }
    }
  });
}

/// Which rows of one key head's group, and which of its keys, a change may reach.
struct ReceptiveField {
  std::vector<bool> rows;  // [Hq, Nq]
  std::vector<bool> keys;  // [Nk]

  template <class T>
  explicit ReceptiveField(const Seen<T>& seen)
      : rows(as_size(seen.shape.query_heads * seen.shape.queries)),
        keys(as_size(seen.shape.keys)) {}

  /// Row i of head h, and the keys that it sees.
  template <class T>
  void add_row(const Seen<T>& seen, Index b, Index h, Index i) {
    rows[as_size(h * seen.shape.queries + i)] = true;
    for (Index j = 0; j < seen.shape.keys; ++j) {
      if (seen.pair(b, h, i, j)) keys[as_size(j)] = true;
    }
  }
};

/// Gradients of q, k and v of batch b keep their bits but where the change reaches, and those of
/// all other batches; one key head.
template <class T>
void expect_same_beyond(const Gradients<T>& clean, const Gradients<T>& got, Index batch,
                        const ReceptiveField& reach) {
  const AttentionShape& s = clean.shape;
  for_each_index({s.batch, s.query_heads, s.queries, 1}, [&](Index b, Index h, Index i, Index) {
    if (b == batch && reach.rows[as_size(h * s.queries + i)]) return;
    EXPECT_TRUE(
        same_bits(clean.q_row(b, h, i), got.q_row(b, h, i), as_size(s.width), {1, 1, 1, s.width}))
        << "row " << i << " of q";
  });
  for_each_index({s.batch, 1, s.keys, 1}, [&](Index b, Index, Index j, Index) {
    if (b == batch && reach.keys[as_size(j)]) return;
    EXPECT_TRUE(
        same_bits(clean.k_row(b, 0, j), got.k_row(b, 0, j), as_size(s.width), {1, 1, 1, s.width}))
        << "row " << j << " of k";
    EXPECT_TRUE(same_bits(clean.v_row(b, 0, j), got.v_row(b, 0, j), as_size(s.value_width),
                          {1, 1, 1, s.value_width}))
        << "row " << j << " of v";
  });
}

/// A key and its value reach the rows that see it, and what those see; an unseen one nothing.
template <class T>
void expect_keys_reach_their_rows(const Case<T>& op, const Problem<T>& problem,
                                  const std::vector<Index>& keys) {
  const Seen<T> seen(op, problem);
  const Gradients<T> clean = run_backward(op, problem);
  std::size_t turn = 0;
  for (const Index j : keys) {
    for (Index b = 0; b < problem.shape.batch; ++b) {
      ReceptiveField reach(seen);
      for_each_index(problem.row_shape(), [&](Index batch, Index h, Index i, Index) {
        if (batch == b && seen.pair(b, h, i, j)) reach.add_row(seen, b, h, i);
      });
      const Problem<T> poisoned = problem.in({}, {}, {}, {});
      const T poison = all_poisons<T>()[turn++ % 7];
      if (turn % 3 != 1) set_row(poisoned.k, b, j, poison);
      if (turn % 3 != 2) set_row(poisoned.v, b, j, poison);
      SCOPED_TRACE("key " + std::to_string(j) + " of batch " + std::to_string(b) + " set to " +
                   std::to_string(poison) + ", " + describe(problem));
      const Gradients<T> got = run_backward(op, poisoned);
      expect_same_beyond(clean, got, b, reach);
      EXPECT_TRUE(seen.any_query(b, 0, j) || same_bits(clean, got));
    }
  }
}

TEST_P(GradientVisibility, InvisibleKeysDoNotChangeBitsOfGradients) {
  each_at_levels([]<class T>(const Case<T>& op) {
    Problem<T> small = make_problem(op, {2, 2, 1, 23, 29, 3, 5});
    small.key_lengths = {19, 29};
    std::vector<Index> keys;
    for (Index j = 0; j < 29; ++j) keys.push_back(j);
    expect_keys_reach_their_rows(op, small, keys);
    Problem<T> tiles = make_problem(op, sizes(150, 270, 3, 4));
    tiles.key_lengths = {260};
    expect_keys_reach_their_rows(op, tiles, {0, 63, 64, 127, 128, 129, 191, 255, 259, 260, 269});
  });
}

/// A row's query and its d_out reach the row and the keys that it sees.
TEST_P(GradientVisibility, RowsAffectGradientsOfVisibleKeys) {
  each_at_levels([]<class T>(const Case<T>& op) {
    for (const auto& [queries, keys] : {std::array<Index, 2>{23, 29}, {70, 40}, {131, 140}}) {
      Problem<T> problem = make_problem(op, {2, 2, 1, queries, keys, 3, 5});
      problem.key_lengths = {keys, keys / 3};
      const Tensor<T> d_out = make_d_out(problem);
      const Seen<T> seen(op, problem);
      const Gradients<T> clean = run_backward(op, problem, d_out);
      for (Index i = 0; i<queries; i += queries> 30 ? 13 : 1) {
        const T poison = all_poisons<T>()[as_size(i % 7)];
        for (const bool in_q : {true, false}) {
          const Index b = i % 2;
          const Problem<T> poisoned = problem.in({}, {}, {}, {});
          const Tensor<T> d = d_out.in({});
          set_row(in_q ? poisoned.q : d, b, i, poison);
          ReceptiveField reach(seen);
          for (Index h = 0; h < 2; ++h) {
            if (seen.any_key(b, h, i)) reach.add_row(seen, b, h, i);
          }
          SCOPED_TRACE("row " + std::to_string(i) + (in_q ? " of q" : " of d_out") + " set to " +
                       std::to_string(poison) + ", " + describe(problem));
          expect_same_beyond(clean, run_backward(op, poisoned, d), b, reach);
        }
      }
    }
  });
}

/// Where it is visible, a NaN goes by IEEE rules.
TEST_P(GradientVisibility, VisibleNaNReachesTheGradients) {
  each([]<class T>(const Case<T>& op) {
    const T nan = std::numeric_limits<T>::quiet_NaN();
    for (const auto& [queries, keys] : {std::array<Index, 2>{40, 40}, {70, 150}}) {
      const Problem<T> clean = make_problem(op, sizes(queries, keys, 4, 5));
      const Tensor<T> d_out = make_d_out(clean);
      set_row(d_out, 0, queries / 2, nan);
      expect_grads_conform(op, clean, d_out);
      const Problem<T> in_q = clean.in({}, {}, {}, {});
      in_q.q(0, 0, queries / 2, 1) = nan;
      expect_grads_conform(op, in_q);
      const Problem<T> in_k = clean.in({}, {}, {}, {});
      set_row(in_k.k, 0, keys / 2, nan);
      expect_grads_conform(op, in_k);
      const Problem<T> in_v = clean.in({}, {}, {}, {});
      set_row(in_v.v, 0, keys / 2, nan);
      expect_grads_conform(op, in_v);
      if (!clean.bias) continue;
      const Problem<T> in_bias = clean.in({}, {}, {}, {});
      const Shape& extents = in_bias.bias->shape();
      (*in_bias.bias)(0, 0, extents[2] / 2, extents[3] / 2) = nan;
      expect_grads_conform(op, in_bias);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, GradientVisibility, conforming_subjects(), test_name);

}  // namespace fovea_test::attention_backward_visibility
