// SPDX-License-Identifier: MIT
// fovea_test(OPTIMISED)
/// \file
/// Every operator on packed sequences, forward and backward: each sequence is a separate problem.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "attention/gradients.hpp"
#include "attention/poisons.hpp"
#include "fovea/core/thread_pool.hpp"

namespace fovea_test::attention_packed {

class Packed : public Conformance {};

/// Sequences of no query, no key, neither; of one token; of fewer and of more queries than keys;
/// around tiles and blocks.
template <class T>
Problem<T> packed_problem(const Case<T>& op, Index heads = 4, Index key_heads = 2) {
  return make_packed(op, {1, heads, key_heads, 0, 0, 5, 6}, {70, 0, 1, 3, 0, 65, 20, 140},
                     {70, 5, 1, 0, 0, 40, 129, 141});
}

/// One key head, since the oracle takes its time; two are in PackedSequencesEqualSeparateSequences.
TEST_P(Packed, PackedSequences) {
  each([]<class T>(const Case<T>& op) {
    expect_conforms(op, packed_problem(op, 2, 1));
    expect_conforms(op, make_packed(op, {1, 1, 1, 0, 0, 16, 16}, {600, 30}, {50, 300}));
    expect_conforms(op, make_packed(op, {1, 2, 1, 0, 0, 3, 2}, {}, {}));
    expect_conforms(op, make_packed(op, {1, 2, 1, 0, 0, 3, 2}, {0, 0}, {0, 4}));
    expect_grads_conform(op, packed_problem(op, 2, 1));
    expect_grads_conform(op, make_packed(op, {1, 1, 1, 0, 0, 16, 16}, {600, 30}, {50, 300}));
    expect_grads_conform(op, make_packed(op, {1, 2, 1, 0, 0, 3, 2}, {0, 0}, {0, 4}));
  });
}

/// cu_seqlens_k is that of the queries if it is not given.
TEST_P(Packed, OneCuSeqlensIsUsedForBoth) {
  each_at_levels([]<class T>(const Case<T>& op) {
    const std::vector<Index> lengths = {7, 0, 64, 30};
    const Problem<T> problem = make_packed(op, {1, 2, 2, 0, 0, 5, 6}, lengths, lengths);
    AllInputs<T> in = problem.inputs();
    in.cu_seqlens_k = {};
    EXPECT_TRUE(same_bits(run(op, problem), run(op, in)));
    const Tensor<T> d_out = make_d_out(problem);
    EXPECT_TRUE(same_bits(run_backward(op, problem, d_out),
                          run_backward(op, in, View<const T>(d_out.view()))));
  });
}

/// Key lengths and the ends of packed sequences may be integers of 32 bits.
TEST_P(Packed, Integers32Bit) {
  each([]<class T>(const Case<T>& op) {
    const auto narrow = [](fovea::IndexSpan wide) {
      return std::vector<std::int32_t>(wide.begin(), wide.end());
    };
    const Problem<T> packed =
        make_packed(op, {1, 2, 1, 0, 0, 5, 6}, {7, 0, 64, 30}, {9, 2, 64, 30});
    AllInputs<T> in = packed.inputs();
    const std::vector<std::int32_t> q = narrow(in.cu_seqlens_q);
    const std::vector<std::int32_t> k = narrow(in.cu_seqlens_k);
    in.cu_seqlens_q = q;
    in.cu_seqlens_k = k;
    EXPECT_TRUE(same_bits(run(op, packed), run(op, in)));
    const Tensor<T> d_out = make_d_out(packed);
    EXPECT_TRUE(same_bits(run_backward(op, packed, d_out),
                          run_backward(op, in, View<const T>(d_out.view()))));
  });
}

/// Packed queries are computed as blocks however few they are; others, if they are few, with the
/// keys in the lanes.
TEST_P(Packed, OnePackedSequenceEqualsNoPacking) {
  each_at_levels([]<class T>(const Case<T>& op) {
    struct Size {
      Index heads, key_heads, queries, keys;
    };
    // The last one has more rows for a key head than a call of the kernel takes.
    for (const auto& [heads, key_heads, queries, keys] :
         {Size{4, 2, 150, 170}, Size{4, 2, 1, 300}, Size{4, 2, 5, 2300}, Size{26, 1, 5, 90}}) {
      const Problem<T> packed =
          make_packed(op, {1, heads, key_heads, 0, 0, 5, 6}, {queries}, {keys});
      Problem<T> plain = packed.in({}, {}, {}, {});
      plain.cu_q = plain.cu_k = {};
      EXPECT_TRUE(same_bits(run(op, packed), run(op, plain))) << queries;
      if (keys > 1000) continue;
      EXPECT_TRUE(same_bits(run_backward(op, packed), run_backward(op, plain))) << queries;
    }
  });
}

/// Some rows of a tensor, of the first batch entry by default: those of a packed sequence.
template <class T>
std::vector<T> rows_of(const std::vector<T>& all, const Shape& shape, Index first, Index count,
                       Index batch = 0) {
  std::vector<T> rows;
  for_each_index({1, shape[1], count, shape[3]}, [&](Index, Index h, Index n, Index d) {
    rows.push_back(all[place_of(shape, batch, h, first + n, d)]);
  });
  return rows;
}

template <class T>
std::vector<T> end_to_end(const std::vector<std::vector<T>>& parts) {
  std::vector<T> all;
  for (const std::vector<T>& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

/// Output, lse if there is one, and the gradients of q, k and v of one sequence. (Those of bias and
/// sink are sums over sequences.)
template <class T>
std::vector<T> results_of_sequence(const Problem<T>& p, const BothResults<T>& all, std::size_t s) {
  const auto queries = [&](const std::vector<T>& x, const Shape& shape) {
    return rows_of(x, shape, p.cu_q[s], p.cu_q[s + 1] - p.cu_q[s]);
  };
  const auto keys = [&](const std::vector<T>& x, const Shape& shape) {
    return rows_of(x, shape, p.cu_k[s], p.cu_k[s + 1] - p.cu_k[s]);
  };
  const auto& [forward, grads] = all;
  return end_to_end<T>({queries(forward.out, p.out_shape()),
                        forward.lse.empty() ? forward.lse : queries(forward.lse, p.row_shape()),
                        queries(grads.q, p.q.shape()), keys(grads.k, p.k.shape()),
                        keys(grads.v, p.v.shape())});
}

TEST_P(Packed, PackedSequencesEqualSeparateSequences) {
  each_at_levels([]<class T>(const Case<T>& op) {
    const Problem<T> problem = packed_problem(op);
    const Tensor<T> d_out = make_d_out(problem);
    const BothResults<T> all = run_both(op, problem, d_out);
    for (std::size_t s = 0; s + 1 < problem.cu_q.size(); ++s) {
      if (op.drops() && s > 0) break;  // the draws of the others are those of their number
      const Index first = problem.cu_q[s];
      const Index queries = problem.cu_q[s + 1] - first;
      const Index first_key = problem.cu_k[s];
      const Index keys = problem.cu_k[s + 1] - first_key;
      const auto [forward, grads] =
          run_both(op, part_of(problem.inputs(), first, queries, first_key, keys),
                   View<const T>(cut(d_out.view(), 2, first, queries)));
      EXPECT_TRUE(same_bits(results_of_sequence(problem, all, s),
                            end_to_end<T>({forward.out, forward.lse, grads.q, grads.k, grads.v})))
          << "sequence " << s;
    }
  });
}

/// A batch whose rows end where the keys of their sequences end, with NaN beyond them.
template <class T>
Problem<T> padded_problem(const Case<T>& op, Index queries, Index keys,
                          const std::vector<Index>& lengths) {
  const auto batch = static_cast<Index>(lengths.size());
  Problem<T> made = make_problem(op, {batch, 4, 2, queries, keys, 5, 6});
  made.key_lengths = lengths;
  for_each_index({batch, 1, keys, 1}, [&](Index b, Index, Index j, Index) {
    if (j < lengths[as_size(b)]) return;
    set_row(made.k, b, j, std::numeric_limits<T>::quiet_NaN());
    set_row(made.v, b, j, std::numeric_limits<T>::quiet_NaN());
  });
  return made;
}

/// The sequences of a padded batch, packed.
template <class T>
Problem<T> packed_of(const Case<T>& op, const Problem<T>& padded) {
  const AttentionShape& s = padded.shape;
  Problem<T> made = make_packed(op, s, std::vector<Index>(as_size(s.batch), s.queries),
                                padded.key_lengths, padded.seed);
  // The sequence of a row, and its place there.
  const auto place = [](const std::vector<Index>& cu, Index row) {
    const auto after = std::upper_bound(cu.begin(), cu.end(), row);
    return std::array<Index, 2>{after - cu.begin() - 1, row - *(after - 1)};
  };
  const auto rows = [&](const Tensor<T>& to, const Tensor<T>& from, const std::vector<Index>& cu) {
    to.fill([&](Index, Index h, Index row, Index d) {
      const auto [b, n] = place(cu, row);
      return from(b, h, n, d);
    });
  };
  const auto pairs = [&]<class X>(std::optional<Tensor<X>>& to,
                                  const std::optional<Tensor<X>>& from) {
    if (!from) return;
    to = Tensor<X>({1, s.query_heads, made.shape.queries, made.shape.keys});
    to->fill([&](Index, Index h, Index row, Index key) {
      const auto [b, i] = place(made.cu_q, row);
      const auto [other, j] = place(made.cu_k, key);
      return b == other ? static_cast<double>(broadcast_at(from->view(), {b, h, i, j})) : 0;
    });
  };
  rows(made.q, padded.q, made.cu_q);
  rows(made.k, padded.k, made.cu_k);
  rows(made.v, padded.v, made.cu_k);
  if (made.beta) rows(*made.beta, *padded.beta, made.cu_k);
  pairs(made.bias, padded.bias);
  pairs(made.mask, padded.mask);
  return made;
}

/// Both passes of a padded batch have the bits of its packed sequences; gradients beyond the keys
/// are 0.
template <class T>
void expect_as_packed(const Case<T>& op, const Problem<T>& padded) {
  const AttentionShape& s = padded.shape;
  const Problem<T> packed = packed_of(op, padded);
  const Tensor<T> d_out = make_d_out(padded);
  const Tensor<T> packed_d_out(packed.out_shape());
  packed_d_out.fill(
      [&](Index, Index h, Index n, Index d) { return d_out(n / s.queries, h, n % s.queries, d); });
  const Result<T> expected = run(op, packed);
  const Gradients<T> expected_grads = run_backward(op, packed, packed_d_out);
  static const fovea::ThreadPool pool(3);
  AnyExecutor threads = AnyExecutor::of(pool);
  for (AnyExecutor* executor : {static_cast<AnyExecutor*>(nullptr), &threads}) {
    const Result<T> got = run(op, padded, executor);
    const Gradients<T> grads = run_backward(op, padded, d_out, executor);
    for (Index b = 0; b < s.batch; ++b) {
      SCOPED_TRACE("sequence " + std::to_string(b));
      const auto expect_same = [b](const std::vector<T>& in_batch, const Shape& shape,
                                   const std::vector<T>& in_packing, const Shape& packed_shape,
                                   Index first, Index count) {
        EXPECT_TRUE(same_bits(rows_of(in_batch, shape, 0, count, b),
                              rows_of(in_packing, packed_shape, first, count)));
      };
      const Index row = b * s.queries;
      const Index key = packed.cu_k[as_size(b)];
      const Index keys = padded.key_lengths[as_size(b)];
      expect_same(got.out, padded.out_shape(), expected.out, packed.out_shape(), row, s.queries);
      if (op.is_softmax) {
        expect_same(got.lse, padded.row_shape(), expected.lse, packed.row_shape(), row, s.queries);
      }
      const Shape& k = padded.k.shape();
      expect_same(grads.q, padded.q.shape(), expected_grads.q, packed.q.shape(), row, s.queries);
      expect_same(grads.k, k, expected_grads.k, packed.k.shape(), key, keys);
      expect_same(grads.v, padded.v.shape(), expected_grads.v, packed.v.shape(), key, keys);
      if (padded.beta) {
        expect_same(grads.beta, padded.beta->shape(), expected_grads.beta, packed.beta->shape(),
                    key, keys);
      }
      for (const T beyond : rows_of(grads.k, k, keys, s.keys - keys, b)) ASSERT_EQ(beyond, 0);
    }
  }
}

TEST_P(Packed, PaddedSequencesWithRowsAtTheirEndsEqualPackedOnes) {
  each([]<class T>(const Case<T>& op) {
    if (op.options.alignment != fovea::CausalAlignment::key_length) return;
    at_each_level([&] {
      // Blocks of rows; few rows, which are split by keys; more rows than keys; all alike; none.
      expect_as_packed(op, padded_problem(op, 9, 150, {150, 41, 5, 0}));
      expect_as_packed(op, padded_problem(op, 70, 300, {300, 131, 64, 1}));
      expect_as_packed(op, padded_problem(op, 2, 2300, {2300, 1, 1100}));
      expect_as_packed(op, padded_problem(op, 3, 16, {5, 5}));
    });
  });
}

/// NaN in one sequence does not affect the others.
TEST_P(Packed, PackedSequencesDoNotSeeEachOther) {
  each_at_levels([]<class T>(const Case<T>& op) {
    const Problem<T> problem = packed_problem(op);
    const Tensor<T> d_out = make_d_out(problem);
    const BothResults<T> clean = run_both(op, problem, d_out);
    for (const std::size_t s : {std::size_t{0}, std::size_t{5}, std::size_t{7}}) {
      const Problem<T> poisoned = problem.in({}, {}, {}, {});
      const Tensor<T> d = d_out.in({});
      const T poison = all_poisons<T>()[s % 3];
      for (Index i = problem.cu_q[s]; i < problem.cu_q[s + 1]; ++i) {
        set_row(poisoned.q, 0, i, poison);
        set_row(d, 0, i, poison);
      }
      for (Index j = problem.cu_k[s]; j < problem.cu_k[s + 1]; ++j) {
        set_row(poisoned.k, 0, j, poison);
        set_row(poisoned.v, 0, j, poison);
      }
      const BothResults<T> got = run_both(op, poisoned, d);
      for (std::size_t other = 0; other + 1 < problem.cu_q.size(); ++other) {
        EXPECT_TRUE(other == s || same_bits(results_of_sequence(problem, clean, other),
                                            results_of_sequence(problem, got, other)))
            << s << " changes " << other;
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(, Packed, packing_subjects(), test_name);

}  // namespace fovea_test::attention_packed
