// SPDX-License-Identifier: MIT
/// \file
/// The backward pass of non-causal linear attention: one state for all rows, and one sum over rows
/// for all tokens (the formulas are in grad.hpp). Cost for each token, query head and map: 8 D Dv
/// flops, and 2 D Dv of linear_sum.

#if !defined(FOVEA_LEVEL)  // for editors
#pragma once
#include "fovea/kernels/linear/grad_keys.inl.hpp"
#include "fovea/kernels/linear/grad_rows.inl.hpp"
#endif

/// Rows that all see the same tokens, for one map.
template <class T>
class GradRowsOfTotal {
 public:
  GradRowsOfTotal(const LinearGradRowsArgs<T>& args, Index map, GradScratch<T> scratch)
      : args_(args),
        map_(map),
        widths_(args.width, args.value_width),
        elements_(linear_map_elements<T>(args.width, args.value_width)),
        total_(args.total + map * elements_),
        turned_(scratch.take(widths_.dv * widths_.d)),
        rows_(widths_, args.maps, scratch),
        u_(scratch.take(kLinearChunk * widths_.d)),
        slopes_(scratch.take(kLinearChunk * widths_.d)),
        records_{nullptr, linear_grad_record<T>(args.width, args.maps.policy)} {
    records_.first = scratch.take(kLinearChunk * records_.elements);
  }

  void run(CompensatedSum<T>& sum) {
    rows_to_lanes(total_, widths_.dv, 1, widths_.width, widths_.value_width, T(1), turned_,
                  widths_.d);
    if (args_.sums != nullptr) clear_elements(args_.sums + map_ * elements_, elements_);
    for (Index r = 0; r < args_.row_count; r += kLinearChunk) {
      process_rows(r, smaller(kLinearChunk, args_.row_count - r));
      add_row_products(records_, rows_.count(), sum);
      if (args_.sums != nullptr) add_sums();
    }
  }

 private:
  void process_rows(Index first, Index count) {
    rows_.read_queries(args_.rows, first, count, map_);
    rows_.read_d_out();
    prefetcher_ = GradPrefetcher<T>((kLinearChunk + widths_.width) * widths_.dv);
    GradRowTile<T>::prefetch(args_.rows, first + count, args_.row_count, widths_, prefetcher_);
    multiply_rows<ProductSteps::all, T>({rows_.d_out(), widths_.dv, 1, turned_, widths_.d, u_,
                                         widths_.d, widths_.value_width, &prefetcher_},
                                        count, widths_.d);
    StateReader<T> reader;
    reader.normaliser = total_ + widths_.width * widths_.dv;
    rows_.process_rows(reader, u_, slopes_, args_.accumulate || map_ > 0, records_);
  }

  /// Adds R and r of the tile's rows.
  void add_sums() {
    rows_.divide(records_);
    T* const sums = args_.sums + map_ * elements_;
    multiply_rows<ProductSteps::all, T>({rows_.features(), 1, widths_.d, rows_.d_out(), widths_.dv,
                                         sums, widths_.dv, rows_.count(), &prefetcher_, 0, true},
                                        widths_.width, widths_.dv);
    T* const normaliser = sums + widths_.width * widths_.dv;
    for (Index c = 0; c < widths_.d; c += kLanes<T>) {
      Vec<T> x = zero<T>();
      for (Index i = 0; i < rows_.count(); ++i) x = rows_.add_d_z(i, c, x);
      store(normaliser + c, load(normaliser + c) + x);
    }
  }

  const LinearGradRowsArgs<T>& args_;
  const Index map_;
  const GradWidths<T> widths_;
  const Index elements_;
  const T* const total_;  // S [D, dv] and z [d]
  T* const turned_;       // S^T [Dv, d]
  GradRowTile<T> rows_;
  GradPrefetcher<T> prefetcher_;
  T* const u_;
  T* const slopes_;
  GradRecords<T> records_;
};

/// Computes d_q of a segment of rows, and their part of R and r.
template <class T>
void linear_grad_rows(const LinearGradRowsArgs<T>& args) noexcept {
  CompensatedSum<T> sum;
  for (Index l = 0; l < args.maps.count; ++l) {
    GradRowsOfTotal<T>(args, l, {args.scratch}).run(sum);
  }
  if (args.rows.d_out_times_out != nullptr) *args.rows.d_out_times_out = sum.value();
}

/// Computes d_k and d_v of some tokens.
template <class T>
void linear_grad_keys(const LinearGradKeysArgs<T>& args) noexcept {
  const GradWidths<T> widths(args.width, args.value_width);
  const bool d_k = args.tokens.d_k.data != nullptr;
  const bool d_v = args.tokens.d_v.data != nullptr;
  for (Index l = 0; l < args.maps.count; ++l) {
    GradScratch<T> scratch{args.scratch};
    GradTokenTile<T> tile(widths, args.maps, scratch);
    TokenGradients<T> gradients(widths, scratch);
    const T* const total = args.total + l * linear_map_elements<T>(args.width, args.value_width);
    for (Index j = 0; j < args.tokens.count; j += kLinearChunk) {
      tile.read_tokens(args.tokens, j, smaller(kLinearChunk, args.tokens.count - j), l);
      GradPrefetcher<T> ahead(2 * kLinearChunk * widths.d);
      GradTokenTile<T>::prefetch(args.tokens, j + kLinearChunk, widths, ahead);
      gradients.read(tile, total, ahead);
      if (d_k) gradients.add(total + widths.width * widths.dv, tile.count());
      if (d_k)
        tile.write_d_k(gradients.d_features(), gradients.scratch(), args.accumulate || l > 0);
      if (d_v) tile.write_d_v(gradients.d_values(), args.accumulate || l > 0);
    }
  }
}
