// SPDX-License-Identifier: MIT
/// \file
/// A layer's learned inputs for Sinkhorn attention: the network that computes sorting logits (Tay
/// et al. 2020, section 3.1). MultiHead<SinkhornAttention> needs this header.
#pragma once

#include <algorithm>
#include <vector>

#include "fovea/attention/sinkhorn.hpp"
#include "fovea/layers/learned_inputs.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

/// R = s W + b, where row u of s [N / b, Dm] is the sum of the tokens of block u of the source, and
/// W has `sorted_blocks` columns per key head, one for each block of keys. A shorter sequence uses
/// the first columns of each head.
///
/// Across ranks, the rank with a block's first token receives its other tokens and computes its row
/// of R. In the backward pass all ranks receive s and the gradient of R of all blocks, and all
/// compute the gradients of W, b and s.
template <class T>
class LearnedInputs<SinkhornAttention, T> : public NoLearnedInputs<T> {
 public:
  /// State for backward, and buffers for gradients, of the local blocks: all N / b, or across ranks
  /// those whose first token is local.
  struct Saved {
    Index blocks = 0;    ///< N / b
    Buffer<T> sums;      ///< [B, 1, local blocks, Dm] the sums of blocks
    Buffer<T> logits;    ///< [B, 1, local blocks, Hk sorted_blocks] R of all heads, concatenated
    Buffer<T> d_sums;    ///< [B, 1, N / b, Dm] the gradient of the sums
    Buffer<T> d_logits;  ///< [B, 1, local blocks, Hk sorted_blocks] that of the logits
  };

  /// Empty; assign one before use.
  LearnedInputs() = default;
  /// Draws W.
  LearnedInputs(const SinkhornAttention& op, const HeadSizes& sizes, Initialiser& initialiser)
      : block_((std::max)(Index{1}, op.options.block)),
        heads_(sizes.key_heads),
        most_(sizes.sorted_blocks),
        sorting_(sizes.width, sizes.key_heads * sizes.sorted_blocks, initialiser,
                 {.outputs_of_one = sizes.sorted_blocks, .name = "sorting"}) {}

  /// Lists W and b.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.sorting_);
  }

  /// Computes the sorting logits of the blocks whose first token is local.
  /// \throws std::invalid_argument if the source has more blocks than `sorted_blocks`
  template <class E>
  void compute(const SinkhornAttention& op, const Tokens<T>& source, Saved& saved,
               E&& executor) const {
    const View<const T>& x = source.x;
    const Index blocks = detail::rows_of_sequence(x, executor) / block_;
    if (op.options.block != block_) {
      refuse(SinkhornAttention::name(), "block", std::to_string(op.options.block),
             std::to_string(block_) + ", as when the layer was constructed");
    }
    if (blocks > most_) {
      refuse(SinkhornAttention::name(), "x has " + std::to_string(blocks) + " blocks",
             "expected at most " + std::to_string(most_) + ", the sorted_blocks of the layer");
    }
    saved.blocks = blocks;
    const auto begun = [&](const Range& rows) { return blocks_begun(rows, blocks); };
    Index here = 0;
    detail::for_each_range(x, executor, [&](Index /*place*/, const Range& rows) {
      here += begun(rows).end - begun(rows).begin;
    });
    const View<T> sums = saved.sums.resize(x.batch(), here, x.width());
    const auto needs = [&](const std::vector<Range>& held) {
      std::vector<Range> rows;
      for (const Range& range : held) {
        rows.push_back({begun(range).begin * block_, begun(range).end * block_});
      }
      return rows;
    };
    detail::with_rows_of_others(
        SinkhornAttention::name(), x, 1, executor, needs, [&](const View<const T>& all) {
          Index at = 0;
          detail::for_each_range(x, executor, [&](Index /*place*/, const Range& rows) {
            for (Index u = begun(rows).begin; u < begun(rows).end; ++u, ++at) {
              for (Index b = 0; b < x.batch(); ++b) sum_block(all, b, u, &sums(b, 0, at, 0));
            }
          });
        });
    sorting_.forward(View<const T>(sums), saved.logits.resize(x.batch(), here, sorting_.out()),
                     executor);
  }

  /// Passes the logits to the operator.
  template <class S>
  void attach(const Tokens<T>& /*source*/, Saved& saved, SinkhornInputs<T>& inputs,
              S& /*kept*/) const {
    inputs.sorting = of_key_heads(saved.logits.view(), saved.blocks);
  }

  /// Requests their gradient from the operator.
  void request_grads(const Tokens<T>& /*source*/, Saved& saved, SinkhornGrads<T>& grads) const {
    const View<T> logits = saved.logits.view();
    const View<T> d = saved.d_logits.resize(logits.batch(), logits.rows(), logits.width());
    std::fill_n(d.data(), d.size(), T{0});  // columns of absent blocks
    grads.sorting = of_key_heads(d, saved.blocks);
  }

  /// Adds to the gradients of W and b and, if given, to d_source. All ranks compute the gradients
  /// of all blocks, since reduction blocks span the blocks of several ranks.
  template <class E>
  void finish(const Tokens<T>& source, Saved& saved, const View<T>& d_source, E&& executor) {
    const View<const T> sums(saved.sums.view());
    const View<T> d_sums = d_source.empty()
                               ? View<T>()
                               : saved.d_sums.resize(sums.batch(), saved.blocks, sums.width());
    const auto gathered = [&](const View<const T>& of_blocks, const auto& f) {
      const auto all = [&](const std::vector<Range>& /*held*/) {
        return std::vector<Range>{{0, saved.blocks}};
      };
      detail::with_rows_of_others(SinkhornAttention::name(), of_blocks, block_, executor, all, f);
    };
    gathered(sums, [&](const View<const T>& all_sums) {
      gathered(saved.d_logits.view(), [&](const View<const T>& d_logits) {
        typename Linear<T>::Saved nothing;
        sorting_.backward(all_sums, nothing, d_logits, d_sums, detail::executor_of_one(executor));
      });
    });
    if (d_source.empty()) return;
    for (Index n = 0; n < source.x.rows(); ++n) {
      const Index block = detail::row_of_sequence(executor, n) / block_;
      if (block >= saved.blocks) return;
      for (Index b = 0; b < source.x.batch(); ++b) {
        for (Index c = 0; c < sums.width(); ++c) d_source(b, 0, n, c) += d_sums(b, 0, block, c);
      }
    }
  }

 private:
  /// The blocks whose first rows are among some rows of the sequence. \param blocks N / b
  Range blocks_begun(const Range& rows, Index blocks) const {
    return {(std::min)((rows.begin + block_ - 1) / block_, blocks),
            (std::min)((rows.end + block_ - 1) / block_, blocks)};
  }

  void sum_block(const View<const T>& x, Index b, Index u, T* to) const {
    std::fill_n(to, x.width(), T{0});
    for (Index n = u * block_; n < (u + 1) * block_; ++n) {
      const T* const row = &x(b, 0, n, 0);
      for (Index c = 0; c < x.width(); ++c) to[c] += row[c];
    }
  }

  /// Views [B, 1, some blocks, Hk sorted_blocks] as [B, Hk, some blocks, N / b].
  View<T> of_key_heads(const View<T>& x, Index blocks) const {
    return {x.data(), {x.batch(), heads_, x.rows(), blocks}, {x.strides()[0], most_, x.width(), 1}};
  }

  Index block_ = 1;
  Index heads_ = 1;
  Index most_ = 1;
  Linear<T> sorting_;
};

FOVEA_NAMESPACE_END
