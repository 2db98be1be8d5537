// SPDX-License-Identifier: MIT
/// \file
/// The register block that does nearly all the work of the library: R scalars by V vectors of
/// accumulators, each a sequence of fused multiply-adds in fixed order. Both products of attention
/// use it: scores (scalars from K, vectors from transposed Q) and values (scalars from V, vectors
/// of weights). Cost: R V multiply-adds on R + V loads per step.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/simd/integers.inl.hpp"
#include "fovea/simd/vec_operations.inl.hpp"
#endif

/// The number of accumulators, which stay in registers with the operands; measured on AVX-512 (16
/// of 32 registers: 4 x 4 and 8 x 2 tie, 24 gain nothing) and AVX2 (12 of 16).
inline constexpr int kAccumulators = Arch::kAccumulators;

/// Scalar rows of a register block that is V vectors wide.
template <int V>
inline constexpr int kBlockRows = kAccumulators / V;

/// Vectors of the widest register block. With 16 registers, 6 x 2 accumulators leave registers for
/// operands and 3 x 4 do not: with those, the backward pass of softmax attention took 1.07 to 1.12
/// times as long on AVX2.
inline constexpr int kBlockVectors = kVecRegisters == 32 ? 4 : 2;

// An operand of a register block has a number in each lane, or a pair of bfloat16 numbers, stored
// as an integer (simd/pairs.inl.hpp).
template <class T>
FOVEA_INLINE Vec<T> load_operand(const T* p) {
  return load(p);
}
FOVEA_INLINE IntVec<float> load_operand(const Int<float>* p) { return load_int<float>(p); }

template <class T>
FOVEA_INLINE Vec<T> set1_operand(T x) {
  return set1(x);
}
FOVEA_INLINE IntVec<float> set1_operand(Int<float> x) { return set1_int<float>(x); }

template <class T>
FOVEA_INLINE Vec<T> add_product(Vec<T> a, Vec<T> b, Vec<T> sum) {
  return fma(a, b, sum);
}
template <class T>
FOVEA_INLINE Vec<T> add_product(IntVec<T> a, IntVec<T> b, Vec<T> sum) {
  return dot_pairs(a, b, sum);
}

/// The numbers of an operand in each lane.
template <class X>
inline constexpr Index kTerms = 1;
template <>
inline constexpr Index kTerms<Int<float>> = 2;

/// R x V accumulators.
template <int R, int V, class T>
struct RegisterBlock {
  Vec<T> at[R][V];

  FOVEA_INLINE void clear() {
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) at[r][v] = zero<T>();
    }
  }

  /// \param p [R, row], the first V * lanes elements are stored
  FOVEA_INLINE void store_to(T* p, Index row) const {
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) store(p + r * row + v * kLanes<T>, at[r][v]);
    }
  }

  /// at[r][v] = p[r, v] + at[r][v]
  FOVEA_INLINE void add_from(const T* p, Index row) {
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) at[r][v] = load(p + r * row + v * kLanes<T>) + at[r][v];
    }
  }

  /// at[r][v] += a[r] * b[v]. The side with fewer operands stays in registers, the other is
  /// streamed.
  template <class X>
  FOVEA_INLINE void multiply_add_step(const X* a, Index a_row, const X* b) {
    using Operand = decltype(load_operand(b));
    if constexpr (R < V) {
      Operand scalar[R];
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) scalar[r] = set1_operand(a[r * a_row]);
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) {
        const Operand x = load_operand(b + v * kLanes<T>);
        FOVEA_UNROLL
        for (int r = 0; r < R; ++r) at[r][v] = add_product(scalar[r], x, at[r][v]);
      }
    } else {
      Operand x[V];
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) x[v] = load_operand(b + v * kLanes<T>);
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) {
        const Operand scalar = set1_operand(a[r * a_row]);
        FOVEA_UNROLL
        for (int v = 0; v < V; ++v) at[r][v] = add_product(scalar, x[v], at[r][v]);
      }
    }
  }

  /// at[r][v] += a[r, s] * b[s, v] for s in [0, steps), in this order. Steps are unrolled in whole
  /// blocks, since fewer instructions matter most when another thread shares the core; the
  /// remainder runs in short code.
  /// \param a [R, steps] scalars at strides a_row, a_step   \param b [steps, V * lanes]
  template <class X>
  FOVEA_INLINE void multiply_add(const X* a, Index a_row, Index a_step, const X* b, Index b_step,
                                 Index steps) {
    if constexpr (2 * R * V > kAccumulators) {
      FOVEA_UNROLL_BY(Arch::kFullBlockSteps)
      for (Index s = 0; s < steps; ++s, a += a_step, b += b_step) multiply_add_step(a, a_row, b);
    } else {
      FOVEA_UNROLL_BY(Arch::kSmallBlockSteps)
      for (Index s = 0; s < steps; ++s, a += a_step, b += b_step) multiply_add_step(a, a_row, b);
    }
  }

  /// The same in reduction blocks of kSteps steps, each added to the previous ones; the first one
  /// starts from `at`. All blocks run in one loop, to generate its code once.
  /// \param a [R, steps]
  /// \param before [R, V * lanes] scratch
  template <Index kSteps, class X>
  FOVEA_INLINE void multiply_add_chains(const X* a, Index a_row, const X* b, Index b_step,
                                        Index steps, T* before, Index before_row) {
    for (Index s = 0;; clear()) {
      multiply_add(a + s, a_row, 1, b + s * b_step, b_step, smaller(steps - s, kSteps));
      if (s > 0) add_from(before, before_row);
      s += kSteps;
      if (s >= steps) return;
      store_to(before, before_row);
    }
  }

  /// multiply_add for vector N only.
  template <int N, class X>
  FOVEA_INLINE void multiply_add_one(const X* a, Index a_row, Index a_step, const X* b,
                                     Index b_step, Index steps) {
    FOVEA_UNROLL_BY(Arch::kSmallBlockSteps)
    for (Index s = 0; s < steps; ++s) {
      const auto x = load_operand(b + N * kLanes<T>);
      FOVEA_UNROLL
      for (int r = 0; r < R; ++r) at[r][N] = add_product(set1_operand(a[r * a_row]), x, at[r][N]);
      a += a_step;
      b += b_step;
    }
  }

  /// Multiplies products of pairs by the factor of logits, which no operand was multiplied by.
  template <class X>
  FOVEA_INLINE void scale_products([[maybe_unused]] T factor) {
    if constexpr (kTerms<X> == 1) return;
    FOVEA_UNROLL
    for (int r = 0; r < R; ++r) {
      FOVEA_UNROLL
      for (int v = 0; v < V; ++v) at[r][v] = at[r][v] * set1(factor);
    }
  }
};

/// The largest power of 2 below R, or 1.
template <int R>
inline constexpr int kPowerBelow = R <= 2 ? 1 : 2 * kPowerBelow<(R + 1) / 2>;

/// Cuts [begin, end) into blocks of R rows, then of fewer ... 1, and calls `functor.template
/// run<rows>(first)` for each: the rest is the same code with fewer rows. Two blocks of the next
/// size are preferred to one of R and a small one, whose few accumulators would be latency-bound.
/// \tparam kIsRest whether these remain after larger blocks, or the code should be short; up to
/// three rows are processed one by one
template <int R, bool kIsRest = false, class Functor>
FOVEA_INLINE void for_row_blocks(Index begin, Index end, const Functor& functor) {
  constexpr Index fewer = kIsRest && R <= 4 ? 1 : kPowerBelow<R>;
  for (; begin + R <= end; begin += R) {
    if (R > 1 && 2 * fewer > R && end - begin == 2 * fewer) break;
    functor.template run<R>(begin);
  }
  if constexpr (R > 1) {
    if (begin < end) for_row_blocks<fewer, true>(begin, end, functor);
  }
}

/// The rows of one group of V column vectors.
template <class T, class BlockAt>
struct ColumnGroups {
  Index rows;
  const BlockAt& block_at;

  template <int V>
  FOVEA_INLINE void run(Index vector) const {
    for_row_blocks<kBlockRows<V>>(0, rows, block_at.template operator()<V>(vector * kLanes<T>));
  }
};

/// Cuts a matrix into register blocks: its columns into groups of kBlockVectors ... 1 vectors, and
/// a group's rows into as many as registers hold. \param columns a multiple of the lanes
/// \param block_at block_at.operator()<V>(column) is the functor for the rows of a group
template <class T, class BlockAt>
FOVEA_INLINE void for_register_blocks(Index rows, Index columns, const BlockAt& block_at) {
  for_row_blocks<kBlockVectors>(0, columns / kLanes<T>, ColumnGroups<T, BlockAt>{rows, block_at});
}

/// scores = s = K Q for R keys and V vectors, in reduction blocks of columns. \param q [steps, row]
/// \param steps D, or half of it for pairs  \param factor of products of pairs
/// \param scores [R, row]
template <int R, int V, class T, class X>
FOVEA_INLINE void score_chains(RegisterBlock<R, V, T>& s, const X* k, Index k_row, const X* q,
                               Index steps, T* scores, Index row, T factor = 1) {
  constexpr Index chain = kReductionBlock / kTerms<X>;
  s.clear();
  s.template multiply_add_chains<chain>(k, k_row, q, row, steps, scores, row);
  s.template scale_products<X>(factor);
  s.store_to(scores, row);
}
