// SPDX-License-Identifier: MIT
/// \file
/// Token and position embeddings.
#pragma once

#include "fovea/layers/linear.hpp"

FOVEA_NAMESPACE_BEGIN

/// y[b, i] = table[token[b, i]] + position[i], for tokens in [0, vocabulary) and y [B, 1, L, C]
/// with dense rows, where L is at most max_length. If max_length is 0, as in models with rotary
/// positions, there is no position table: y[b, i] = table[token[b, i]] for sequences of any length.
/// The weights are drawn uniformly with variance 1 / C.
/// \tparam W the type of the table, as in Linear
template <class T, class W = T>
class Embedding : public LayerParts<Embedding<T, W>> {
 public:
  Parameter<W> table;     ///< [vocabulary, C] token vectors
  Parameter<T> position;  ///< [max_length, C] position vectors; [0, C] without positions

  /// An empty layer; assign one before use.
  Embedding() = default;

  /// Draws the weights.
  /// \throws std::invalid_argument if max_length is below 0, or another size below 1
  Embedding(Index vocabulary, Index max_length, Index width, Initialiser& initialiser)
      : table("embedding.table", vocabulary, width),
        position("embedding.position", (std::max<Index>)(0, max_length), width) {
    check_size("Embedding", "the vocabulary", vocabulary);
    if (max_length < 0) {
      refuse("Embedding", "max_length", std::to_string(max_length), "at least 0");
    }
    check_size("Embedding", "the width of y", width);
    const double bound = std::sqrt(3 / static_cast<double>(width));
    initialiser.uniform(table, bound);
    if (has_positions()) initialiser.uniform(position, bound);
  }

  /// Whether there is a position table.
  bool has_positions() const { return position.value.rows() != 0; }

  /// Lists the table, and the positions if there are any.
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.table);
    if (self.has_positions()) f(self.position);
  }

  /// Computes y.
  /// \param tokens [B L] integers of 32 or 64 bits
  /// \param y [B, 1, L, C] is written
  /// \throws std::invalid_argument if the number of tokens does not match y, for the first token
  /// that is not in the vocabulary, or if y has a wrong shape
  template <class E = Serial>
  void forward(IndexSpan tokens, const View<T>& y, E&& executor = {}) const {
    forward_from(0, tokens, y, executor);
  }

  /// Computes y for tokens in the middle of a sequence: y[b, i] = table[token[b, i]] +
  /// position[first_position + i].
  /// \param first_position of the first token of each sequence
  /// \throws as `forward`, and if the positions are not in [0, max_length), or negative without a
  /// position table
  template <class E = Serial>
  void forward_from(Index first_position, IndexSpan tokens, const View<T>& y,
                    E&& executor = {}) const {
    check(tokens, "y", y, first_position, executor);
    detail::check_distinct("Embedding", "y", y);
    const double products = kProducts * static_cast<double>(y.width());
    detail::for_each_row_block(
        as_executor(executor), y.batch(), y.rows(), products,
        [&](Index b, Index first, Index count) {
          for (Index n = first; n < first + count; ++n) {
            auto row = detail::rows_of(y, b, n, 1);
            row = table.value.row(at(tokens, y, b, n)).template cast<T>();
            if (!has_positions()) continue;
            row += position.value.row(first_position + detail::row_of_sequence(executor, n));
          }
        });
  }

  /// Adds to the gradients of the parameters.
  /// \param tokens [B L] the tokens of the forward pass
  /// \param d_y the gradient of the loss with respect to y
  /// \throws as `forward`
  template <class E = Serial>
  void backward(IndexSpan tokens, const View<const T>& d_y, E&& executor = {}) {
    check(tokens, "d_y", d_y, 0, executor);
    auto&& threads = as_executor(executor);
    add_to_rows(d_y, table.gradient_sum(), threads,
                [&](Index b, Index n) { return at(tokens, d_y, b, n); });
    if (!has_positions()) return;
    add_to_rows(d_y, position.gradient_sum(), threads,
                [&](Index /*b*/, Index n) { return detail::row_of_sequence(threads, n); });
  }

  /// Computes the logits of an output layer tied to the table (Press and Wolf 2017): the logit of
  /// token w at row i is <x_i, table[w]>. It costs 2 vocabulary C flops per token.
  /// \param x [B, 1, L, C] with dense rows \param logits [B, 1, L, vocabulary] is written
  /// \throws std::invalid_argument if a shape or layout is wrong
  template <class E = Serial>
  void logits(const View<const T>& x, const View<T>& logits, E&& executor = {}) const {
    check_activations("Embedding", "x", x, table.value.cols());
    check_alike("Embedding", "logits", logits, table.value.rows(), x);
    check_written("Embedding", "logits", logits, "x", x);
    detail::multiply_rows_transposed(x, table.value, logits, OutputMode::write,
                                     as_executor(executor));
  }

  /// Adds the logits' contribution to the gradient of the table. If given, d_x is written or added
  /// to.
  /// \param x as in `logits` \param d_logits the gradient of the loss with respect to them
  /// \throws as `logits`
  template <class E = Serial>
  void logits_backward(const View<const T>& x, const View<const T>& d_logits, const View<T>& d_x,
                       E&& executor = {}, OutputMode into = OutputMode::write) {
    check_activations("Embedding", "x", x, table.value.cols());
    check_alike("Embedding", "d_logits", d_logits, table.value.rows(), x);
    auto&& threads = as_executor(executor);
    if (!d_x.empty()) {
      check_alike("Embedding", "d_x", d_x, table.value.cols(), x);
      check_written("Embedding", "d_x", d_x, "x", x);
      check_written("Embedding", "d_x", d_x, "d_logits", d_logits);
    }
    detail::add_outer_product(d_logits, x, table.gradient_sum(), threads);
    if (!d_x.empty()) detail::multiply_rows<T>(d_logits, table.value, {}, d_x, threads, into);
  }

 private:
  /// Cost of one element, in multiply-adds.
  static constexpr double kProducts = 16;

  /// Adds each row of d_y to a row of a table. \param row_of called as row_of(b, n)
  template <class E, class F>
  static void add_to_rows(const View<const T>& d_y, RowMatrix<T>& sum, E&& threads,
                          const F& row_of) {
    constexpr Index least_rows = 256;
    const auto elements = kProducts * static_cast<double>(d_y.batch() * d_y.rows());
    const auto add = [&](const detail::SumRows<T>& to, const detail::TokenRange& tokens) {
      detail::for_each_column_block(
          threads, d_y.width(), detail::kColumnsPerTask, elements, [&](Index first, Index count) {
            for (Index b = tokens.sequences.begin; b < tokens.sequences.end; ++b) {
              const auto rows = detail::rows_of(d_y, b);
              for (Index n = tokens.rows.begin; n < tokens.rows.end; ++n) {
                const Index row = row_of(b, n);
                if (!to.rows.holds(row)) continue;
                T* const at = to.data + (row - to.rows.begin) * d_y.width() + first;
                Eigen::Map<RowMatrix<T>>(at, 1, count) += rows.row(n).segment(first, count);
              }
            }
          });
    };
    detail::sum_over_tokens(d_y, sum, least_rows, threads, add);
  }

  template <class U>
  static Index at(IndexSpan tokens, const View<U>& y, Index b, Index n) {
    return tokens[static_cast<std::size_t>(b * y.rows() + n)];
  }

  template <class U, class E>
  void check(IndexSpan tokens, const char* tensor, const View<U>& y, Index first_position,
             const E& executor) const {
    check_activations("Embedding", tensor, y, table.value.cols());
    check_positions(tensor, detail::rows_of_sequence(y, executor), first_position);
    if (static_cast<Index>(tokens.size()) != y.batch() * y.rows()) {
      refuse("Embedding", "the number of tokens", std::to_string(tokens.size()),
             std::to_string(y.batch() * y.rows()) + ", the batch times the rows of " + tensor);
    }
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (tokens[i] >= 0 && tokens[i] < table.value.rows()) continue;
      refuse("Embedding", "token " + std::to_string(i), std::to_string(tokens[i]),
             range_text<Index>(0, table.value.rows() - 1) + ", the vocabulary");
    }
  }

  void check_positions(const char* tensor, Index rows, Index first_position) const {
    if (!has_positions()) {
      if (first_position >= 0) return;
      refuse("Embedding", "first_position", std::to_string(first_position), "at least 0");
    }
    const Index most = position.value.rows();
    if (first_position < 0 || first_position > most) {
      refuse("Embedding", "first_position", std::to_string(first_position),
             range_text<Index>(0, most) + ", max_length");
    }
    if (rows > most - first_position) {
      refuse("Embedding", std::string(tensor) + " has " + std::to_string(rows) + " rows",
             "expected at most " + std::to_string(most - first_position) +
                 (first_position == 0 ? "" : " from position " + std::to_string(first_position)) +
                 ", max_length" + (first_position == 0 ? "" : " is " + std::to_string(most)));
    }
  }
};

FOVEA_NAMESPACE_END
