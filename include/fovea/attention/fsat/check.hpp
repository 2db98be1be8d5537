// SPDX-License-Identifier: MIT
/// \file
/// The checks of FSAT attention: options, sequences, and, in every call, every dominant index.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "fovea/attention/call/head_matrix.hpp"
#include "fovea/attention/fsat/options.hpp"
#include "fovea/attention/indexed/check.hpp"
#include "fovea/attention/softmax/options.hpp"

FOVEA_NAMESPACE_BEGIN

namespace detail {

/// Whether all numbers of a [rows, M] matrix are finite and not negative.
/// \param width M
template <class T>
bool are_indices(const Matrix<const T>& x, Index rows, Index width) {
  constexpr T most = (std::numeric_limits<T>::max)();
  const bool is_one_piece = x.column == 1 && x.row == width;
  const Index count = is_one_piece ? rows * width : width;
  bool good = true;
  for (Index j = 0; j < (is_one_piece ? 1 : rows); ++j) {
    const T* const row = x.data + j * x.row;
    for (Index m = 0; m < count; ++m) {
      const T number = row[m * x.column];
      good = good & (number >= 0) & (number <= most);
    }
  }
  return good;
}

/// Checks that queries and keys are the same tokens, sequence by sequence.
template <class T>
void check_same_tokens(const char* op, const FsatInputs<T>& inputs) {
  check_extent(op, "k", inputs.k.shape(), 2, inputs.q.rows(),
               "the rows of q: queries and keys are the same tokens");
  for (std::size_t s = 0; s < inputs.cu_seqlens_k.size(); ++s) {
    if (inputs.cu_seqlens_k[s] == inputs.cu_seqlens_q[s]) continue;
    refuse(op, "cu_seqlens_k[" + std::to_string(s) + "]", std::to_string(inputs.cu_seqlens_k[s]),
           std::to_string(inputs.cu_seqlens_q[s]) +
               ", as cu_seqlens_q: queries and keys are the same tokens");
  }
}

}  // namespace detail

/// Checks the options, and that max_length covers the sequences.
/// \tparam T the type of the arithmetic
/// \pre check_packing passed
/// \throws std::invalid_argument
template <class T, class U>
void check_fsat_options(const char* op, const FsatOptions& options, const FsatInputs<U>& inputs) {
  check_softmax_options<T>(op, {.scale = options.scale});
  const Sequences<U> sequences(inputs);
  Index longest = sequences.packed() ? 0 : inputs.q.rows();
  for (Index s = 0; sequences.packed() && s < sequences.count(); ++s) {
    longest = (std::max)(longest, sequences[s].keys);
  }
  if (options.max_length < (std::max<Index>)(1, longest)) {
    refuse(op, "max_length", std::to_string(options.max_length),
           "at least " + std::to_string(std::max<Index>(1, longest)) +
               ", the tokens of the longest sequence");
  }
  constexpr auto least = static_cast<double>((std::numeric_limits<T>::min)());
  constexpr auto most = static_cast<double>((std::numeric_limits<T>::max)());
  const double variance = options.variance_or_default();
  if (!(variance >= least && variance <= most)) {
    refuse(op, "variance", to_string(variance), "more than 0 and finite in the inputs' type");
  }
}

/// Checks the dominant indices: [B, Hq, L, M], and those within the key lengths finite and not
/// negative. Cost: O(B Hq L M).
/// \pre check_inputs and check_packing passed
/// \throws std::invalid_argument naming the first wrong entry
template <class T>
void check_dominant(const char* op, const FsatInputs<T>& inputs) {
  const View<const Compute<T>>& x = inputs.dominant;
  const Shape& q = inputs.q.shape();
  if (x.empty()) {
    if (q[0] * q[1] * q[2] == 0) return;
    refuse_missing(op, "dominant", "[B, Hq, Nk, M], the dominant indices of each key");
  }
  constexpr std::array<const char*, 3> whose = {"the batch of q", "the heads of q",
                                                "the rows of k"};
  for (std::size_t d = 0; d < 3; ++d) {
    detail::check_extent(op, "dominant", x.shape(), d, q[d], whose[d]);
  }
  if (x.width() == 0) {
    refuse_extent(op, "dominant", x.shape(), 3,
                  "at least 1, the number of dominant queries of a key");
  }
  const Sequences<T> sequences(inputs);
  for (Index n = 0; n < sequences.count(); ++n) {
    const Sequence s = sequences[n];
    for (Index h = 0; h < q[1]; ++h) {
      const auto head = detail::head_matrix(x, s.batch, h, s.first_key);
      if (detail::are_indices(head, s.key_end, x.width())) continue;
      for (Index i = 0; i < s.key_end * x.width(); ++i) {
        const Index j = i / x.width();
        const Index m = i % x.width();
        const Compute<T> number = head.data[j * head.row + m * head.column];
        if (number >= 0 && number <= (std::numeric_limits<Compute<T>>::max)()) continue;
        refuse(op,
               "dominant[" + std::to_string(s.batch) + ", " + std::to_string(h) + ", " +
                   std::to_string(s.first_key + j) + ", " + std::to_string(m) + "]",
               to_string(number), "a finite number of at least 0");
      }
    }
  }
}

/// Checks the given queries of random edges, if any: [B, Hq, L, M], and those within the key
/// lengths are queries of their sequence. Cost: O(B Hq L M).
/// \pre check_dominant passed
/// \throws std::invalid_argument naming the first wrong entry
template <class T>
void check_random(const char* op, const FsatOptions& options, const FsatInputs<T>& inputs) {
  const View<const Index>& x = inputs.random;
  if (x.empty()) return;
  constexpr std::array<const char*, 4> whose = {"the batch of q", "the heads of q", "the rows of k",
                                                "the width of dominant"};
  for (std::size_t d = 0; d < 4; ++d) {
    detail::check_extent(op, "random", x.shape(), d, inputs.dominant.shape()[d], whose[d]);
  }
  if (options.edges == EdgeSource::predicted) return;
  const Sequences<T> sequences(inputs);
  for (Index n = 0; n < sequences.count(); ++n) {
    const Sequence s = sequences[n];
    for (Index h = 0; h < x.heads(); ++h) {
      for (Index j = 0; j < s.key_end; ++j) {
        for (Index m = 0; m < x.width(); ++m) {
          const Index query = x(s.batch, h, s.first_key + j, m);
          if (query >= 0 && query < s.key_end) continue;
          refuse(op,
                 "random[" + std::to_string(s.batch) + ", " + std::to_string(h) + ", " +
                     std::to_string(s.first_key + j) + ", " + std::to_string(m) + "]",
                 std::to_string(query),
                 "0 to " + std::to_string(s.key_end - 1) + ", the queries of its sequence");
        }
      }
    }
  }
}

/// Checks the options and FSAT attention's inputs, except the dominant indices.
/// \throws std::invalid_argument
template <class T>
void check_fsat_inputs(const char* op, const FsatOptions& options, const FsatInputs<T>& inputs) {
  check_inputs(op, inputs);
  check_packing(op, inputs);
  detail::check_same_tokens(op, inputs);
  check_fsat_options<Compute<T>>(op, options, inputs);
}

FOVEA_NAMESPACE_END
