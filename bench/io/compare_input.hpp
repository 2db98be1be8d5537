// SPDX-License-Identifier: MIT
/// \file
/// The input of fovea_compare: q, k, v of a whole document, of which shorter sequences are the
/// beginning. They are those of a trained model, from files, or computed from a text. A text is
/// embedded with fixed tables: no training, but repeated words, neighbours in position and heads of
/// different sharpness are in the logits as they are in a trained model.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/entries/all_inputs.hpp"
#include "bench/io/compare_arguments.hpp"
#include "bench/io/gaussian.hpp"
#include "bench/io/npy.hpp"
#include "bench/io/sketch.hpp"
#include "fovea/attention/attention.hpp"
#include "fovea/core/scalar.hpp"

namespace bench {

/// q, k, v of one sequence; a batch counts as heads.
template <class T>
struct HeadTensorsOf {
  fovea::Shape q_shape{};  // [1, Hq, N, D]
  fovea::Shape k_shape{};  // [1, Hk, N, D]
  fovea::Shape v_shape{};  // [1, Hk, N, Dv]
  std::vector<T> q, k, v;
  Sketch<T> sketch = {};  // of as many positions as are in use

  /// The inputs of the first n positions.
  bench::AllInputs<T> first(Index n) const {
    const auto beginning = [n](const std::vector<T>& x, fovea::Shape shape) {
      const fovea::Shape strides = fovea::row_major(shape);
      shape[2] = n;
      return fovea::View<const T>(x.data(), shape, strides);
    };
    return {beginning(q, q_shape), beginning(k, k_shape), beginning(v, v_shape)};
  }
};

using HeadTensors = HeadTensorsOf<float>;

/// The same numbers as double, without the sketch.
inline HeadTensorsOf<double> in_double(const HeadTensors& x) {
  const auto widened = [](const std::vector<float>& numbers) {
    return std::vector<double>(numbers.begin(), numbers.end());
  };
  return {x.q_shape, x.k_shape, x.v_shape, widened(x.q), widened(x.k), widened(x.v)};
}

/// Width of a token before it is projected to heads.
inline constexpr Index kModelWidth = 128;

namespace detail {

/// Seeds of the tables, one stream each.
inline constexpr std::uint64_t kTextSeed = 20260;
enum TextStream : std::uint32_t { kBytes = 0, kQueries = 3, kKeys = 4, kValues = 5 };

using Token = std::array<float, static_cast<std::size_t>(kModelWidth)>;

/// Adds sines and cosines of the position, at wavelengths from 2 pi to 10000 2 pi.
inline void add_position(Index position, Token& token) {
  for (std::size_t c = 0; c < token.size(); c += 2) {
    const double exponent = static_cast<double>(c) / static_cast<double>(token.size());
    const double angle = static_cast<double>(position) / std::pow(10000.0, exponent);
    token[c] += static_cast<float>(std::sin(angle));
    token[c + 1] += static_cast<float>(std::cos(angle));
  }
}

/// Mean 0 and variance 1.
inline void normalise(Token& token) {
  double mean = 0;
  double square = 0;
  for (const float x : token) mean += x;
  mean /= static_cast<double>(token.size());
  for (const float x : token) square += (x - mean) * (x - mean);
  const double scale = 1 / std::sqrt(square / static_cast<double>(token.size()) + 1e-5);
  for (float& x : token) x = static_cast<float>((x - mean) * scale);
}

/// out[j] += gain sum_c token[c] matrix[c, j] for j in [0, width).
inline void project(const Token& token, const float* matrix, Index width, float gain, float* out) {
  for (const float x : token) {
    for (Index j = 0; j < width; ++j) out[j] += gain * x * matrix[j];
    matrix += width;
  }
}

}  // namespace detail

/// The first n tokens of a document [n][kModelWidth]: byte and two bytes before it, by tables, plus
/// position, layer-normalised. A short document begins again at its end.
/// \pre document is not empty.
inline std::vector<detail::Token> embed_tokens(std::string_view document, Index n) {
  constexpr std::array<float, 3> weight = {1.0f, 0.7f, 0.5f};  // of the byte, and those before
  std::array<std::vector<float>, 3> tables;                    // [256, kModelWidth]
  for (std::uint32_t back = 0; back < 3; ++back) {
    tables[back] = gaussians(detail::kTextSeed, detail::kBytes + back, 256 * kModelWidth);
  }
  std::vector<detail::Token> tokens(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    for (std::size_t back = 0; back < std::min<std::size_t>(3, i + 1); ++back) {
      const auto byte = static_cast<unsigned char>(document[(i - back) % document.size()]);
      const float* row = tables[back].data() + byte * kModelWidth;
      for (std::size_t c = 0; c < tokens[i].size(); ++c) tokens[i][c] += weight[back] * row[c];
    }
    detail::add_position(static_cast<Index>(i), tokens[i]);
    detail::normalise(tokens[i]);
  }
  return tokens;
}

/// Tokens projected to heads by fixed random matrices. Keys share 0.6 of the query matrix, so that
/// like attends to like, and queries of head h have gain 1/2, 1, 2, 1/2, ...: some heads look
/// widely, some at few keys.
inline HeadTensors embed_text(std::string_view document, Index n, Index heads, Index width) {
  const std::vector<detail::Token> tokens = embed_tokens(document, n);
  const fovea::Shape shape = {1, heads, n, width};
  const std::vector<float> zeros(static_cast<std::size_t>(heads * n * width), 0.0f);
  HeadTensors x{shape, shape, shape, zeros, zeros, zeros};
  const Index matrix = kModelWidth * width;
  const float deviation = 1 / std::sqrt(static_cast<float>(kModelWidth));
  const auto wq = gaussians(detail::kTextSeed, detail::kQueries, heads * matrix, deviation);
  const auto wk = gaussians(detail::kTextSeed, detail::kKeys, heads * matrix, deviation);
  const auto wv = gaussians(detail::kTextSeed, detail::kValues, heads * matrix, deviation);
  constexpr std::array<float, 3> gains = {0.5f, 1.0f, 2.0f};
  for (Index h = 0; h < heads; ++h) {
    const float gain = gains[static_cast<std::size_t>(h % 3)];
    for (Index i = 0; i < n; ++i) {
      const detail::Token& token = tokens[static_cast<std::size_t>(i)];
      const Index row = (h * n + i) * width;
      detail::project(token, wq.data() + h * matrix, width, gain, x.q.data() + row);
      detail::project(token, wq.data() + h * matrix, width, 0.6f, x.k.data() + row);
      detail::project(token, wk.data() + h * matrix, width, 0.8f, x.k.data() + row);
      detail::project(token, wv.data() + h * matrix, width, 1.0f, x.v.data() + row);
    }
  }
  return x;
}

namespace detail {

/// The first number of a tensor [1, H, N, D] that is not finite, in its first n rows, and how many
/// there are; empty if all are finite. \param name of the tensor
inline std::string not_finite(const char* name, const fovea::View<const float>& x) {
  std::string first;
  Index count = 0;
  for (Index h = 0; h < x.heads(); ++h) {
    for (Index n = 0; n < x.rows(); ++n) {
      for (Index d = 0; d < x.width(); ++d) {
        const float number = x(0, h, n, d);
        if (std::isfinite(number) || count++ > 0) continue;
        first = std::string(name) + " holds " + (std::isnan(number) ? "NaN" : "infinity") +
                " at head " + std::to_string(h) + ", row " + std::to_string(n) + ", column " +
                std::to_string(d);
      }
    }
  }
  if (count > 1) first += " and " + std::to_string(count - 1) + " more";
  return first;
}

}  // namespace detail

/// Refuses tensors that contain NaN or infinity in their first n rows: errors of results would be
/// undefined. \param type of the numbers
/// \throws std::runtime_error that names the tensors
inline void check_finite(const HeadTensors& tensors, Index n, const std::string& source,
                         const char* type = "float32") {
  const bench::AllInputs<float> in = tensors.first(n);
  std::string found;
  for (const auto& [name, x] : {std::pair{"q.npy", in.q}, {"k.npy", in.k}, {"v.npy", in.v}}) {
    const std::string one = detail::not_finite(name, x);
    if (!one.empty()) found += (found.empty() ? "" : "; ") + one;
  }
  if (found.empty()) return;
  throw std::runtime_error(source + ": " + found + " (as " + type +
                           "): the operators' results could not be judged");
}

/// Rounds all numbers to S, a type of 16 bits.
template <class S>
void round_to(HeadTensors& tensors) {
  for (std::vector<float>* numbers : {&tensors.q, &tensors.k, &tensors.v}) {
    for (float& x : *numbers) x = static_cast<float>(static_cast<S>(x));
  }
}

/// q.npy, k.npy and v.npy of a directory. \throws std::runtime_error
inline HeadTensors read_qkv(const std::string& directory) {
  NpyTensor q = read_heads(directory + "/q.npy");
  NpyTensor k = read_heads(directory + "/k.npy");
  NpyTensor v = read_heads(directory + "/v.npy");
  const auto expect = [&](bool holds, const char* what) {
    if (holds) return;
    throw std::runtime_error(directory + ": " + what + "; q is " + fovea::to_string(q.shape) +
                             ", k " + fovea::to_string(k.shape) + ", v " +
                             fovea::to_string(v.shape));
  };
  expect(q.shape[0] == k.shape[0] && q.shape[0] == v.shape[0], "the batches of q, k, v differ");
  expect(k.shape[1] == v.shape[1], "the heads of k and v differ");
  expect(q.shape[1] % k.shape[1] == 0, "the heads of k must divide those of q");
  expect(q.shape[2] == k.shape[2] && q.shape[2] == v.shape[2], "the rows of q, k, v differ");
  expect(q.shape[3] == k.shape[3], "the widths of q and k differ");
  const auto as_heads = [](const fovea::Shape& s) {
    return fovea::Shape{1, s[0] * s[1], s[2], s[3]};
  };
  return {as_heads(q.shape),   as_heads(k.shape),   as_heads(v.shape),
          std::move(q.values), std::move(k.values), std::move(v.values)};
}

/// The tensors of --qkv, or the repository's below `root`; lengths beyond their rows are dropped,
/// unless they were requested. \param what their description, written   \throws std::runtime_error
/// if they are missing, not finite, or too short
inline HeadTensors tensors_of_directory(CompareArguments& arguments,
                                        const std::filesystem::path& root, std::string& what,
                                        const char* flag = "--lengths") {
  const bool kept = arguments.qkv_directory.empty();
  const std::string directory =
      kept ? (root / kKeptTensors).generic_string() : arguments.qkv_directory;
  if (kept && !std::filesystem::exists(directory + "/q.npy")) {
    throw std::runtime_error(
        directory +
        ": the tensors of this build's source tree no longer exist; give --qkv DIR or --text FILE");
  }
  HeadTensors tensors = read_qkv(directory);
  const Index rows = tensors.q_shape[2];
  if (arguments.lengths_given && arguments.lengths.back() > rows) {
    throw std::runtime_error(directory + ": has " + std::to_string(rows) + " rows; " + flag +
                             " asks for " + std::to_string(arguments.lengths.back()));
  }
  std::erase_if(arguments.lengths, [&](Index n) { return n > rows; });
  if (arguments.lengths.empty()) arguments.lengths = {rows};
  check_finite(tensors, arguments.lengths.back(), directory);
  what = (kept ? "SmolLM2-135M over a text, " : "q, k, v of " + directory + ", ") +
         fovea::to_string(tensors.q_shape);
  return tensors;
}

}  // namespace bench
