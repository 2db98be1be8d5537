// SPDX-License-Identifier: MIT
/// \file
/// The projections of Linformer attention, E k and F v, and their gradients, divided into tasks.
/// Sums have a fixed order, so the bits do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <array>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/call/scratch_tensor.hpp"
#include "fovea/attention/linformer/tensors.hpp"
#include "fovea/core/executor_ref.hpp"
#include "fovea/core/index_span.hpp"
#include "fovea/kernels/layers/table.hpp"
#include "fovea/patterns/pattern.hpp"
#include "fovea/simd/padding.hpp"

FOVEA_NAMESPACE_BEGIN

/// One of the two products, X = E k or X = F v, and its gradients.
template <class T>
struct LinformerProduct {
  View<const T> projection;   ///< [1, 1 or Hk, P, Nk] E
  View<const T> tokens;       ///< [B, Hk, Nk, C] k; rows from the key length on are not read
  View<T> projected;          ///< [B, Hk, P, C] X, with unit columns
  View<const T> d_projected;  ///< [B, Hk, P, C] its gradient, dense
  View<T> d_projection = {};  ///< the shape of E; empty: not computed
  View<T> d_tokens = {};      ///< the shape of k; empty: not computed
  /// Whether the product is added to X, which then contains the sum over preceding tokens, a
  /// multiple of a reduction block of them.
  bool adds = false;
};

/// Both products of one call.
template <class T>
class LinformerProjection {
 public:
  /// The rows of X or of E that one task computes.
  static constexpr Index kTaskRows = 128;
  /// The rows of k or columns of E that one task computes.
  static constexpr Index kTaskKeys = 256;
  /// The rows of X that are multiplied at once: their block of E and the rows of k stay in the
  /// second-level cache.
  static constexpr Index kRowsAtOnce = 64;
  /// The number of heads that share E and are computed at once: its block, whose rows are far apart
  /// in memory, is packed once for them.
  static constexpr Index kHeadsAtOnce = 4;

  /// \param key_lengths of the call, which must outlive this object
  LinformerProjection(const LinformerShape& shape, IndexSpan key_lengths)
      : shape_(shape), key_lengths_(key_lengths) {}

  /// Elements of scratch for one worker, a multiple of a cache line.
  static Index scratch_elements(const LinformerShape& s) {
    return padded_size(packed_elements(s) + (std::max)(tile_elements(s), block_elements(s)));
  }

  /// The number of tasks of the largest part.
  Index most_tasks() const {
    return 2 * (std::max)({head_count() * parts(), head_count() * tiles(),
                           (std::max<Index>)(shape_.key_heads, 1) * parts() * tiles()});
  }

  /// Writes X for both products.
  /// \param scratch [workers, scratch_elements]
  void project(const std::array<LinformerProduct<T>, 2>& products, T* scratch,
               const ExecutorRef& executor) const {
    const Index keys = group_count(products[0]) * parts();
    const Index values = group_count(products[1]) * parts();
    for_each_task(executor, keys + values, [&](Index task, Index worker) {
      const bool is_value = task >= keys;
      const Index of = is_value ? task - keys : task;
      const LinformerProduct<T>& p = products[is_value ? 1 : 0];
      const Index head = of / parts() * heads_at_once(p);
      project_rows(p, {head, (std::min)(head + heads_at_once(p), head_count())},
                   of % parts() * kTaskRows, scratch + worker * scratch_elements(shape_));
    });
  }

  /// The heads that are computed at once: those that share E, up to a limit.
  static Index heads_at_once(const LinformerProduct<T>& p) {
    return p.projection.heads() == 1 ? kHeadsAtOnce : 1;
  }

  /// Writes up to kTaskRows rows of X = E k for some heads: a part of `project`. \param heads of
  /// all sequences, up to heads_at_once(p)   \param first the first row   \param scratch
  /// [scratch_elements]
  void project_rows(const LinformerProduct<T>& p, const Range& heads, Index first,
                    T* scratch) const {
    const Index end = (std::min)(first + kTaskRows, shape_.projected_keys);
    for (Index s = 0; s == 0 || s < shape_.keys; s += kStepsAtOnce) {
      for (Index n = first; n < end; n += kRowsAtOnce) {
        const Index rows = (std::min)(kRowsAtOnce, end - n);
        Matrix<const T> e = part(p.projection, 0, heads.begin % shape_.key_heads, n, s);
        if (heads.end - heads.begin > 1 && e.column == 1) {
          T* const block = scratch + packed_elements(shape_);
          const Index steps = (std::min)(kStepsAtOnce, shape_.keys - s);
          detail::copy_rows(e, rows, steps, Matrix<T>{block, block_row(shape_), 1});
          e = {block, block_row(shape_), 1};
        }
        for (Index head = heads.begin; head < heads.end; ++head) {
          project_block(p, e, head / shape_.key_heads, head % shape_.key_heads, n, rows, s,
                        scratch);
        }
      }
    }
  }

  /// Writes the requested gradients, from d_projected.
  /// \param scratch as in `project`
  void backward(const std::array<LinformerProduct<T>, 2>& products, T* scratch,
                const ExecutorRef& executor) const {
    const Index slot = scratch_elements(shape_);
    // Neighbouring tasks read the same columns of E.
    for_each_task(executor, 2 * head_count() * tiles(), [&](Index task, Index worker) {
      const LinformerProduct<T>& p = products[static_cast<std::size_t>(task / head_count() % 2)];
      if (p.d_tokens.empty()) return;
      const Index head = task % head_count();
      tokens_gradient(p, head / shape_.key_heads, head % shape_.key_heads,
                      task / head_count() / 2 * kTaskKeys, scratch + worker * slot);
    });
    const Index tasks = (std::max<Index>)(shape_.key_heads, 1) * parts() * tiles();
    for_each_task(executor, 2 * tasks, [&](Index task, Index worker) {
      const LinformerProduct<T>& p = products[static_cast<std::size_t>(task / tasks)];
      const Index head = task % tasks / (parts() * tiles());
      if (head >= p.d_projection.heads()) return;
      const Index tile = task % (parts() * tiles());
      projection_gradient(p, head, tile / tiles() * kTaskRows, tile % tiles() * kTaskKeys,
                          scratch + worker * slot);
    });
  }

 private:
  /// Rows of b that are packed at once: a multiple of the reduction block, so that the bits are
  /// those of a single product.
  static constexpr Index kPackedSteps = 4 * kReductionBlock;

  static Index most_width(const LinformerShape& s) { return (std::max)(s.width, s.value_width); }
  static Index packed_elements(const LinformerShape& s) {
    return (std::min)(kPackedSteps, (std::max)(s.keys, most_width(s))) *
           (std::max)(most_width(s), (std::min)(kTaskKeys, s.keys));
  }
  static Index tile_elements(const LinformerShape& s) {
    const Index keys = (std::min)(kTaskKeys, s.keys);
    return keys * (std::max)(most_width(s), (std::min)(kTaskRows, s.projected_keys));
  }

  Index head_count() const { return shape_.batch * shape_.key_heads; }
  Index parts() const { return (shape_.projected_keys + kTaskRows - 1) / kTaskRows; }
  Index tiles() const { return (shape_.keys + kTaskKeys - 1) / kTaskKeys; }
  Index key_end(Index b) const { return key_lengths_.value_or(b, shape_.keys); }

  /// The matrix of a head from row n and column m on; empty for a null pointer.
  template <class U>
  static Matrix<U> part(const View<U>& x, Index b, Index h, Index n, Index m) {
    Matrix<U> from = detail::head_matrix(x, b, x.heads() == 1 ? 0 : h, n);
    from.column = detail::column_stride(x);
    if (x.size() != 0) from.data += m * from.column;
    return from;
  }
  template <class U>
  static Matrix<U> transposed(const Matrix<U>& m) {
    return {m.data, m.column, m.row};
  }

  /// to = a b, or to += a b. The kernel reads contiguous rows or columns of b; others are packed
  /// first.
  /// \param p everything but b   \param packed packed_elements(...) elements
  static void multiply(ProductArgs<T> p, const Matrix<const T>& b, T* packed) {
    const ProductKernels<T> kernels;
    if (b.column == 1 || b.row == 1) {
      p.b = stored(b);
      kernels.multiply(p);
      return;
    }
    const Index steps = p.steps;
    const Matrix<const T> a = p.a;
    p.b = stored(Matrix<const T>{packed, p.columns, 1});
    for (Index s = 0; s == 0 || s < steps; s += kPackedSteps) {
      p.steps = (std::min)(kPackedSteps, steps - s);
      detail::copy_rows(Matrix<const T>{b.data + s * b.row, b.row, b.column}, p.steps, p.columns,
                        Matrix<T>{packed, p.columns, 1});
      if (s > 0) p.a.data = a.data + s * a.column;
      kernels.multiply(p);
      p.add = true;
    }
  }

  /// Calls compute(rows, row) with dense rows at distance `row`: those of `to`, or, if its columns
  /// are not contiguous, rows of the tile, which are then copied to it.
  template <class F>
  static void write(const Matrix<T>& to, Index rows, Index columns, T* tile, F&& compute) {
    if (to.column == 1) {
      compute(to.data, to.row);
      return;
    }
    compute(tile, columns);
    detail::copy_rows(Matrix<T>{tile, columns, 1}, rows, columns, to);
  }
  static void clear(T* to, Index row, Index rows, Index columns) {
    for (Index i = 0; i < rows; ++i) std::fill_n(to + i * row, columns, T{0});
  }

  /// The columns of E that are multiplied at once.
  static constexpr Index kStepsAtOnce = 16 * kReductionBlock;

  static Index block_row(const LinformerShape& s) {
    constexpr Index line = 64 / Index{sizeof(T)};  // so that rows map to different cache sets
    return padded_size((std::min)(kStepsAtOnce, s.keys)) + line;
  }
  static Index block_elements(const LinformerShape& s) {
    return (std::min)(kRowsAtOnce, s.projected_keys) * block_row(s);
  }
  Index group_count(const LinformerProduct<T>& p) const {
    return (head_count() + heads_at_once(p) - 1) / heads_at_once(p);
  }

  /// Adds the products with a block of E, from row n and column s on, to rows of X.
  void project_block(const LinformerProduct<T>& p, const Matrix<const T>& e, Index b, Index h,
                     Index n, Index rows, Index s, T* packed) const {
    const bool adds = p.adds || s > 0;
    if (adds && s >= key_end(b)) return;
    const Matrix<T> to = part(p.projected, b, h, n, 0);
    multiply({.a = e,
              .b = {},
              .to = to.data,
              .to_row = to.row,
              .rows = rows,
              .columns = p.tokens.width(),
              .steps = (std::min)(kStepsAtOnce, key_end(b) - s),
              .add = adds},
             part(p.tokens, b, h, s, 0), packed);
  }

  /// Computes some rows of dk = E^T dX.
  void tokens_gradient(const LinformerProduct<T>& p, Index b, Index h, Index first,
                       T* scratch) const {
    const Index width = p.tokens.width();
    const Index rows = (std::min)(kTaskKeys, shape_.keys - first);
    const Index seen = std::clamp<Index>(key_end(b) - first, 0, rows);
    const auto compute = [&](T* to, Index row) {
      if (seen > 0) {
        multiply({.a = transposed(part(p.projection, 0, h, 0, first)),
                  .b = {},
                  .to = to,
                  .to_row = row,
                  .rows = seen,
                  .columns = width,
                  .steps = shape_.projected_keys},
                 part(p.d_projected, b, h, 0, 0), scratch);
      }
      clear(to + seen * row, row, rows - seen, width);
    };
    write(part(p.d_tokens, b, h, first, 0), rows, width, scratch + packed_elements(shape_),
          compute);
  }

  /// Computes a tile of dE, the sum of dX k^T over the batch and over the heads that share E.
  void projection_gradient(const LinformerProduct<T>& p, Index h, Index first, Index first_key,
                           T* scratch) const {
    const Index rows = (std::min)(kTaskRows, shape_.projected_keys - first);
    const Index columns = (std::min)(kTaskKeys, shape_.keys - first_key);
    const bool is_shared = p.d_projection.heads() == 1;
    const auto compute = [&](T* to, Index row) {
      clear(to, row, rows, columns);
      for (Index b = 0; b < shape_.batch; ++b) {
        const Index seen = std::clamp<Index>(key_end(b) - first_key, 0, columns);
        if (seen == 0) continue;
        for (Index n = is_shared ? 0 : h; n < (is_shared ? shape_.key_heads : h + 1); ++n) {
          multiply({.a = part(p.d_projected, b, n, first, 0),
                    .b = {},
                    .to = to,
                    .to_row = row,
                    .rows = rows,
                    .columns = seen,
                    .steps = p.tokens.width(),
                    .add = true},
                   transposed(part(p.tokens, b, n, first_key, 0)), scratch);
        }
      }
    };
    write(part(p.d_projection, 0, h, first, first_key), rows, columns,
          scratch + packed_elements(shape_), compute);
  }

  LinformerShape shape_;
  IndexSpan key_lengths_;
};

FOVEA_NAMESPACE_END
