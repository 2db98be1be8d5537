// SPDX-License-Identifier: MIT
/// \file
/// A parameter with a matrix for each head, whose rows may belong to sequence positions.
#pragma once

#include <optional>
#include <type_traits>

#include "fovea/layers/parameter.hpp"
#include "fovea/layers/token_sums.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// The rows of such a parameter that belong to local tokens.
template <class T>
struct RowsByPosition {
  /// [1, H, L, columns] A copy of the local tokens' rows, if the sequence is sharded.
  std::optional<Buffer<T>> own;
  Buffer<T> gradient;  ///< [1, H, L, columns] a buffer for their gradient
};

/// A parameter of H vertically stacked matrices.
template <class T>
struct HeadMatrices {
  Parameter<T> parameter;  // [H rows, columns]
  Index heads = 1;

  HeadMatrices() = default;
  /// \param inputs, outputs of the map that one matrix represents
  HeadMatrices(const char* name, Index head_count, Index rows, Index columns,
               Initialiser& initialiser, Index inputs, Index outputs)
      : parameter(name, head_count * rows, columns), heads(head_count) {
    initialiser.draw(parameter, Initialisation::glorot, inputs, outputs);
  }

  /// The first rows and columns of each matrix, [1, H, rows, columns].
  View<const T> view(Index rows, Index columns) const {
    return part(parameter.value, rows, columns);
  }
  /// Adds the gradient of these. \param gradient [1, H, rows, columns]
  void add(const View<T>& gradient) {
    const View<T> to = part(parameter.gradient_sum(), gradient.rows(), gradient.width());
    for (Index h = 0; h < heads; ++h) {
      for (Index n = 0; n < gradient.rows(); ++n) {
        for (Index c = 0; c < gradient.width(); ++c) to(0, h, n, c) += gradient(0, h, n, c);
      }
    }
  }

  /// Finds the rows of `count` tokens. \param columns the number of columns read
  template <class E>
  void find_rows(Index count, Index columns, RowsByPosition<T>& found, const E& executor) const {
    if constexpr (ShardsRows<E>) {
      if (!found.own) found.own.emplace();
      const View<T> copy = found.own->resize({1, heads, count, columns});
      const View<const T> all = view(of_head(), columns);
      for (Index h = 0; h < heads; ++h) {
        for (Index n = 0; n < count; ++n) {
          const Index position = executor.row_of_sequence(n);
          for (Index c = 0; c < columns; ++c) copy(0, h, n, c) = all(0, h, position, c);
        }
      }
    } else {
      found.own.reset();
    }
  }
  /// The rows that were found. \param count, columns used if all tokens are local
  View<const T> rows(Index count, Index columns, const RowsByPosition<T>& found) const {
    return found.own ? found.own->view() : view(count, columns);
  }
  /// Adds the gradient of the rows of all tokens, across ranks.
  template <class E>
  void add_rows(RowsByPosition<T>& of, E&& executor) {
    constexpr Index least_rows = 16;  // enough for a message
    const View<const T> d(of.gradient.view());
    RowMatrix<T>& sum = parameter.gradient_sum();
    sum_over_tokens(d, sum, least_rows, executor,
                    [&](const SumRows<T>& to, const TokenRange& tokens) {
                      for (Index h = 0; h < heads; ++h) {
                        for (Index n = tokens.rows.begin; n < tokens.rows.end; ++n) {
                          const Index row = h * of_head() + row_of_sequence(executor, n);
                          if (row < to.rows.begin || row >= to.rows.end) continue;
                          T* const into = to.data + (row - to.rows.begin) * sum.cols();
                          for (Index c = 0; c < d.width(); ++c) into[c] += d(0, h, n, c);
                        }
                      }
                    });
  }

 private:
  /// The rows of one matrix.
  Index of_head() const { return parameter.value.rows() / heads; }

  template <class M>
  auto part(M& matrix, Index rows, Index columns) const {
    const Index row = parameter.value.cols();
    const Index head = of_head() * row;
    using Element = std::remove_reference_t<decltype(*matrix.data())>;
    return View<Element>(matrix.data(), {1, heads, rows, columns}, {heads * head, head, row, 1});
  }
};

}  // namespace detail

FOVEA_NAMESPACE_END
