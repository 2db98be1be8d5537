// SPDX-License-Identifier: MIT
/// \file
/// The node cases of ONNX's operator Attention (opsets 23 to 25), each by one call of fovea, with
/// tensors of every type. FOVEA_ONNX_CASES names the file that attention_cases.py writes.
#include <gtest/gtest.h>

#include <Eigen/Core>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "fovea/attention/full.hpp"
#include "fovea/attention/scores.hpp"

namespace fovea_test::onnx_attention {

using fovea::CausalAlignment;
using fovea::FullAttention;
using fovea::Index;
using fovea::Shape;
using fovea::View;

/// A tensor as the file has it.
struct Array {
  std::string type;
  std::vector<Index> extents;
  std::vector<double> numbers;

  /// The extent of dimension d of `rank` if ones are put before those there are.
  Index extent(std::size_t d, std::size_t rank = 4) const {
    const std::size_t before = rank - extents.size();
    return d < before ? 1 : extents[d - before];
  }
  Shape shape() const { return {extent(0), extent(1), extent(2), extent(3)}; }
};

struct Node {
  std::string name;
  std::map<std::string, double> attributes;
  std::map<std::string, Array> tensors;

  double attribute(const std::string& of, double otherwise) const {
    const auto found = attributes.find(of);
    return found == attributes.end() ? otherwise : found->second;
  }
  const Array* tensor(const std::string& of) const {
    const auto found = tensors.find(of);
    return found == tensors.end() ? nullptr : &found->second;
  }
};

double number(std::istream& in) {
  std::string text;
  in >> text;
  return std::strtod(text.c_str(), nullptr);  // which also reads nan and inf
}

std::vector<Node> read_cases() {
  const char* const path = std::getenv("FOVEA_ONNX_CASES");
  std::ifstream in(path == nullptr ? "" : path);
  std::vector<Node> all;
  std::string kind;
  std::string name;
  while (in >> kind >> name) {
    if (kind == "case") {
      all.push_back({name, {}, {}});
    } else if (kind == "attribute") {
      all.back().attributes[name] = number(in);
    } else {
      Array array;
      std::size_t rank = 0;
      in >> array.type >> rank;
      Index size = 1;
      for (std::size_t d = 0; d < rank; ++d) {
        array.extents.push_back(static_cast<Index>(number(in)));
        size *= array.extents.back();
      }
      for (Index i = 0; i < size; ++i) array.numbers.push_back(number(in));
      all.back().tensors[name] = std::move(array);
    }
  }
  return all;
}

/// Numbers of T, and the strides of the operator's tensor [B, H, N, D] in them.
template <class T>
struct Held {
  std::vector<T> numbers;
  Shape shape;
  Shape strides;

  View<T> view() { return {numbers.data(), shape, strides}; }
};

/// A tensor of rank 4, or of rank 3 with the heads side by side.
template <class T>
Held<T> held(const Array& array, double heads) {
  Held<T> made;
  for (const double x : array.numbers)
    made.numbers.push_back(static_cast<T>(static_cast<float>(x)));
  if constexpr (std::same_as<T, double>) made.numbers = array.numbers;
  if (array.extents.size() == 4) {
    made.shape = array.shape();
    made.strides = fovea::row_major(made.shape);
  } else {
    const Index h = static_cast<Index>(heads);
    const Index rows = array.extents[1];
    const Index width = array.extents[2] / h;
    made.shape = {array.extents[0], h, rows, width};
    made.strides = {rows * h * width, width, h * width, 1};
  }
  return made;
}

/// The rows of `past`, and then those of `added`: a caller of fovea keeps a cache, or a Decoder.
template <class T>
Held<T> appended(const Array& past, Held<T> added) {
  Held<T> before = held<T>(past, 0);
  Held<T> made;
  made.shape = added.shape;
  made.shape[2] += before.shape[2];
  made.strides = fovea::row_major(made.shape);
  made.numbers.resize(static_cast<std::size_t>(made.shape[0] * made.strides[0]));
  for (Index b = 0; b < made.shape[0]; ++b) {
    for (Index h = 0; h < made.shape[1]; ++h) {
      for (Index n = 0; n < made.shape[2]; ++n) {
        for (Index d = 0; d < made.shape[3]; ++d) {
          const Index row = n - before.shape[2];
          made.view()(b, h, n, d) =
              row < 0 ? before.view()(b, h, n, d) : added.view()(b, h, row, d);
        }
      }
    }
  }
  return made;
}

/// Holds numbers to expected ones, within what the coarser type of both rounds.
template <class T>
void expect_near(const View<T>& got, const Array& expected, double heads, double bound) {
  Held<double> reference = held<double>(expected, heads);
  ASSERT_EQ(got.shape(), reference.shape);
  for (Index b = 0; b < got.batch(); ++b) {
    for (Index h = 0; h < got.heads(); ++h) {
      for (Index n = 0; n < got.rows(); ++n) {
        for (Index d = 0; d < got.width(); ++d) {
          const double x = static_cast<double>(static_cast<float>(got(b, h, n, d)));
          const double y = reference.view()(b, h, n, d);
          ASSERT_TRUE(x == y || std::abs(x - y) <= bound * (1 + std::abs(y)))
              << x << ", expected " << y << " at " << b << " " << h << " " << n << " " << d;
        }
      }
    }
  }
}

/// The bound for results of T with inputs of `type`.
template <class T>
double bound_of(const std::string& type) {
  const double of_reference = type == "float32" ? 1e-6 : type == "float16" ? 2e-3 : 2e-2;
  const double of_inputs = std::same_as<T, Eigen::bfloat16> ? 3e-2
                           : std::same_as<T, Eigen::half>   ? 4e-3
                                                            : 1e-6;
  return std::max(of_reference, of_inputs);
}

/// The options for the attributes.
fovea::FullOptions options_of(const Node& node) {
  fovea::FullOptions options;
  options.causal = node.attribute("is_causal", 0) != 0;
  const double left = node.attribute("left_window_size", -1);
  const double right = node.attribute("right_window_size", -1);
  if (left >= 0) options.window.left = static_cast<Index>(left);
  if (right >= 0) options.window.right = static_cast<Index>(right);
  if (node.attributes.contains("scale")) options.scale = node.attribute("scale", 0);
  if (node.attribute("softcap", 0) > 0) options.soft_cap = node.attribute("softcap", 0);
  // Queries follow the past, end where the keys of their sequence do, or begin with the keys.
  options.alignment = node.tensor("nonpad_kv_seqlen") != nullptr ? CausalAlignment::key_length
                                                                 : CausalAlignment::top_left;
  return options;
}

/// A case in T: what it reads is made ready, and then there is one call.
template <class T>
void expect_case(const Node& node) {
  using C = fovea::Compute<T>;
  const double q_heads = node.attribute("q_num_heads", 0);
  const double kv_heads = node.attribute("kv_num_heads", 0);
  Held<T> q = held<T>(*node.tensor("Q"), q_heads);
  Held<T> k = held<T>(*node.tensor("K"), kv_heads);
  Held<T> v = held<T>(*node.tensor("V"), kv_heads);
  fovea::SoftmaxInputs<T> in;
  std::vector<Index> first_positions;
  if (const Array* past = node.tensor("past_key")) {
    k = appended(*past, k);
    v = appended(*node.tensor("past_value"), v);
    first_positions.assign(static_cast<std::size_t>(q.shape[0]), past->extents[2]);
    in.first_positions = first_positions;
  }
  in.q = q.view();
  in.k = k.view();
  in.v = v.view();
  std::vector<Index> lengths;
  if (const Array* given = node.tensor("nonpad_kv_seqlen")) {
    for (const double x : given->numbers) lengths.push_back(static_cast<Index>(x));
    in.key_lengths = lengths;
  }
  Held<C> bias;
  const Array* const mask = node.tensor("attn_mask");
  std::vector<char> flags;
  if (mask != nullptr && mask->type == "bool") {
    for (const double x : mask->numbers) flags.push_back(x != 0 ? 1 : 0);
    in.mask = {reinterpret_cast<const bool*>(flags.data()), mask->shape()};
  } else if (mask != nullptr) {
    Array whole = *mask;
    const Shape shape = mask->shape();
    whole.extents.assign(shape.begin(), shape.end());
    bias = held<C>(whole, 0);
    in.bias = bias.view();
  }

  const FullAttention op{options_of(node)};
  const Array& expected = *node.tensor("Y");
  const Shape out_shape = {q.shape[0], q.shape[1], q.shape[2], v.shape[3]};
  std::vector<T> out(
      static_cast<std::size_t>(out_shape[0] * out_shape[1] * out_shape[2] * out_shape[3]));
  const View<T> to(out.data(), out_shape);
  const double bound = bound_of<T>(expected.type);
  if (const Array* pairs = node.tensor("qk_matmul_output")) {
    std::vector<C> numbers(pairs->numbers.size());
    const View<C> matrix(numbers.data(), pairs->shape());
    fovea::AttentionScores<T> scores{.out = to};
    const int mode = static_cast<int>(node.attribute("qk_matmul_output_mode", 0));
    (mode == 0   ? scores.raw
     : mode == 1 ? scores.capped
     : mode == 2 ? scores.logits
                 : scores.weights) = matrix;
    fovea::attention_scores<T>(op, in, scores);
    expect_near(matrix, *pairs, 0, bound);
  } else {
    op.forward(in, to);
  }
  expect_near(to, expected, q_heads, bound);
}

TEST(Onnx, FindsTheCases) { EXPECT_EQ(read_cases().size(), 93U) << "FOVEA_ONNX_CASES"; }

TEST(Onnx, AttentionMatches) {
  for (const Node& node : read_cases()) {
    SCOPED_TRACE(node.name);
    EXPECT_NO_THROW(expect_case<float>(node)) << "float";
    EXPECT_NO_THROW(expect_case<double>(node)) << "double";
    EXPECT_NO_THROW(expect_case<Eigen::half>(node)) << "float16";
    EXPECT_NO_THROW(expect_case<Eigen::bfloat16>(node)) << "bfloat16";
  }
}

}  // namespace fovea_test::onnx_attention
