// SPDX-License-Identifier: MIT
// fovea_test(NEEDS io)
#include "fovea/io/parameters.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <stdexcept>

#include "fovea/attention/full.hpp"
#include "fovea/io/npy.hpp"
#include "fovea/io/safetensors.hpp"
#include "fovea/layers/encoder_block.hpp"
#include "fovea/layers/multi_head.hpp"
#include "support/refusal.hpp"
#include "support/scratch_folder.hpp"

namespace fovea_test::io_parameters {

using fovea::Dtype;
using fovea::Index;
using fovea::Initialiser;
using fovea::Linear;
using fovea::LoadOptions;
using fovea::Parameter;
using fovea::ParameterSource;
using fovea::StoredTensor;
using fovea::TensorSet;

using Block = fovea::EncoderBlock<fovea::MultiHead<fovea::FullAttention, float>, float>;

Block make_block(std::uint64_t seed) {
  Initialiser initialiser(seed);
  return Block({fovea::FullAttention{}, {.width = 6, .heads = 2, .bias = true}, initialiser}, 6, 5,
               initialiser);
}

template <class Layer>
std::vector<float> values_of(const Layer& layer) {
  std::vector<float> all;
  layer.visit([&](const auto& parameter) {
    const auto& value = parameter.value;
    for (Index i = 0; i < value.size(); ++i) all.push_back(static_cast<float>(value.data()[i]));
  });
  return all;
}

template <class Layer>
std::string message_of(Layer& layer, const TensorSet& set, const LoadOptions& options = {}) {
  const std::vector<float> before = values_of(layer);
  try {
    fovea::load_parameters(layer, set, options);
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(values_of(layer), before) << "nothing is written";
    return error.what();
  }
  return "accepted";
}

TEST(Parameters, RoundTripBitwise) {
  const ScratchFolder folder;
  const Block saved = make_block(1);
  const TensorSet set = fovea::parameters_of(saved);
  fovea::write_safetensors(folder / "x.safetensors", set);
  fovea::write_npy_folder(folder / "x", set);
  for (const TensorSet& read :
       {fovea::read_safetensors(folder / "x.safetensors"), fovea::read_npy_folder(folder / "x")}) {
    Block loaded = make_block(2);
    ASSERT_NE(values_of(loaded), values_of(saved));
    fovea::load_parameters(loaded, read);
    EXPECT_EQ(values_of(loaded), values_of(saved));
  }
}

TEST(Parameters, RowsAreVectorsAndMatricesAreInByOut) {
  const TensorSet set = fovea::parameters_of(make_block(1));
  EXPECT_EQ(set.at("attention.qkv.weight").shape, (std::vector<Index>{6, 18}));
  EXPECT_EQ(set.at("attention.qkv.bias").shape, (std::vector<Index>{18}));
  EXPECT_EQ(set.at("norm1.scale").shape, (std::vector<Index>{6}));
}

TEST(Parameters, MayBeStoredIn16Bits) {
  const Block saved = make_block(1);
  for (const Dtype dtype : {Dtype::f16, Dtype::bf16, Dtype::f64}) {
    const TensorSet set = fovea::parameters_of(saved, dtype);
    EXPECT_EQ(set.at("attention.qkv.weight").dtype, dtype);
    Block loaded = make_block(2);
    fovea::load_parameters(loaded, set);
    const auto expected = values_of(saved);
    const auto got = values_of(loaded);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const auto rounded = dtype == Dtype::f16    ? static_cast<float>(Eigen::half(expected[i]))
                           : dtype == Dtype::bf16 ? static_cast<float>(Eigen::bfloat16(expected[i]))
                                                  : expected[i];
      ASSERT_EQ(got[i], rounded);
    }
  }
  for (const Dtype dtype : {Dtype::i32, Dtype::u8, Dtype::boolean, Dtype::f8_e4m3, Dtype::f8_e5m2,
                            Dtype::f8_e8m0, Dtype::f4, Dtype::c64}) {
    EXPECT_THROW((void)fovea::parameters_of(saved, dtype), std::invalid_argument);
  }
}

TEST(Parameters, Of8BitsAreWidenedAndOthersRefused) {
  const Block before = make_block(1);
  TensorSet set = fovea::parameters_of(before);
  set.origin = "x";
  const std::vector<std::uint8_t> bytes = {0x38, 0x40, 0xB8, 0x01, 0x7E, 0x00};
  set.tensors["norm2.scale"] = {.dtype = Dtype::f8_e4m3,
                                .shape = {6},
                                .bytes = std::as_bytes(std::span<const std::uint8_t>(bytes))};
  Block loaded = make_block(2);
  fovea::load_parameters(loaded, set);
  const TensorSet read = fovea::parameters_of(loaded);
  std::vector<float> scale(6);
  read.at("norm2.scale").read(scale.data());
  EXPECT_EQ(scale, (std::vector<float>{1, 2, -1, 0x1p-9F, 448, 0}));
  set.tensors["norm2.scale"].dtype = Dtype::f4;
  set.tensors["norm2.scale"].bytes = set.tensors["norm2.scale"].bytes.first(3);
  Block block = make_block(2);
  EXPECT_EQ(message_of(block, set),
            "x: 'norm2.scale' cannot be read: " + fovea::why_not_converted(Dtype::f4));
  EXPECT_EQ(values_of(block), values_of(make_block(2)));
}

TEST(Parameters, MissingAndUnknownNamesAreListed) {
  Block block = make_block(1);
  const Block other = make_block(2);
  TensorSet set = fovea::parameters_of(other);
  set.origin = "x";
  set.tensors["extra"] = set.tensors["norm1.scale"];
  set.tensors.erase("norm2.shift");
  set.tensors.erase("attention.out.bias");
  EXPECT_EQ(message_of(block, set),
            "x: missing are 'attention.out.bias', 'norm2.shift'; unknown are 'extra'");
  set.tensors["norm2.shift"] = set.tensors["attention.out.bias"] = set.tensors["extra"];
  EXPECT_EQ(message_of(block, set), "x: unknown are 'extra'");
  EXPECT_EQ(message_of(block, set, {.allow_unknown = true}), "accepted");
}

TEST(Parameters, ShapesMustMatchTheLayer) {
  Initialiser initialiser(1);
  Linear<float> layer(2, 3, initialiser);
  const std::vector<float> six = {1, 2, 3, 4, 5, 6};
  const auto bytes = std::as_bytes(std::span<const float>(six));
  TensorSet set{.origin = "x"};
  set.tensors["linear.bias"] = {.shape = {3}, .bytes = bytes.first(12)};
  const auto message = [&](std::vector<Index> shape) {
    set.tensors["linear.weight"] = {.shape = std::move(shape), .bytes = bytes};
    return message_of(layer, set);
  };
  EXPECT_EQ(message({3, 2}), "x: 'linear.weight' is [2, 3]; got 'linear.weight' of [3, 2]");
  EXPECT_EQ(message({6}), "x: 'linear.weight' is [2, 3]; got 'linear.weight' of [6]");
  EXPECT_EQ(message({1, 2, 3}), "x: 'linear.weight' is [2, 3]; got 'linear.weight' of [1, 2, 3]");
  EXPECT_EQ(message({2, 3}), "accepted");
  set.tensors["linear.bias"].shape = {1, 3};
  EXPECT_EQ(message({2, 3}), "accepted");
}

/// A framework's names and layout: [outputs, inputs], and three maps in place of one.
TEST(Parameters, CanBeReadFromAnotherModel) {
  Initialiser initialiser(1);
  fovea::MultiHead<fovea::FullAttention, double> layer(
      fovea::FullAttention{}, {.width = 2, .heads = 2, .key_heads = 1, .bias = true}, initialiser);
  const std::vector<float> q = {1, 2, 3, 4}, k = {5, 6}, v = {7, 8}, o = {9, 10, 11, 12};
  const std::vector<float> row = {21, 22, 23, 24};
  TensorSet set{.origin = "x"};
  const auto add = [&](const char* name, std::vector<Index> shape, const std::vector<float>& from,
                       std::size_t first, std::size_t count) {
    set.tensors[name] = {.shape = std::move(shape),
                         .bytes = std::as_bytes(std::span(from).subspan(first, count))};
  };
  add("q_proj.weight", {2, 2}, q, 0, 4), add("q_proj.bias", {2}, row, 0, 2);
  add("k_proj.weight", {1, 2}, k, 0, 2), add("k_proj.bias", {1}, row, 2, 1);
  add("v_proj.weight", {1, 2}, v, 0, 2), add("v_proj.bias", {1}, row, 3, 1);
  add("o_proj.weight", {2, 2}, o, 0, 4), add("o_proj.bias", {2}, row, 1, 2);
  const LoadOptions options{.sources = [](const std::string& name) {
    const std::string kind = name.substr(name.find('.'));
    if (name.starts_with("out")) return std::vector<ParameterSource>{{"o_proj" + kind, true}};
    return std::vector<ParameterSource>{
        {"q_proj" + kind, true}, {"k_proj" + kind, true}, {"v_proj" + kind, true}};
  }};
  fovea::load_parameters(layer, set, options);
  const TensorSet loaded = fovea::parameters_of(layer);
  const auto values = [&](const char* name) {
    std::vector<float> all(static_cast<std::size_t>(loaded.at(name).size()));
    loaded.at(name).read(all.data());
    return all;
  };
  EXPECT_EQ(values("qkv.weight"), (std::vector<float>{1, 3, 5, 7, 2, 4, 6, 8}));
  EXPECT_EQ(values("qkv.bias"), row);
  EXPECT_EQ(values("out.weight"), (std::vector<float>{9, 11, 10, 12}));
  EXPECT_EQ(values("out.bias"), (std::vector<float>{22, 23}));

  set.tensors.erase("v_proj.weight");
  EXPECT_EQ(message_of(layer, set, options), "x: missing are 'v_proj.weight'");
  add("v_proj.weight", {2, 2}, q, 0, 4);
  EXPECT_EQ(
      message_of(layer, set, options),
      "x: 'qkv.weight' is [2, 4]; got 'v_proj.weight' of [2, 2] (transposed) after 3 columns");
  add("v_proj.weight", {0, 2}, q, 0, 0);
  EXPECT_EQ(message_of(layer, set, options), "x: 'qkv.weight' is [2, 4]; got 3 columns in total");
}

void decode_integers(const std::byte* from, Index count, float* to) {
  std::copy_n(reinterpret_cast<const std::uint16_t*>(from), count, to);
}

TEST(StoredTensor, LongCodedTensorsAreReadWhole) {
  std::vector<std::uint16_t> coded(9000);
  std::iota(coded.begin(), coded.end(), std::uint16_t{0});
  const StoredTensor tensor{.shape = {std::ssize(coded)},
                            .bytes = std::as_bytes(std::span<const std::uint16_t>(coded)),
                            .decode = decode_integers};
  std::vector<float> numbers(coded.size());
  tensor.read(numbers.data());
  EXPECT_TRUE(std::equal(coded.begin(), coded.end(), numbers.begin()));
}

/// Of many rows, which are transposed some at a time, of floats, of 16 bits and column-major.
TEST(Parameters, AreTransposedFromEveryTypeAndOrder) {
  constexpr Index in = 19, out = 37;
  std::vector<float> numbers, by_columns;
  for (Index i = 0; i < in * out; ++i) numbers.push_back(static_cast<float>(i));
  for (Index c = 0; c < in; ++c) {
    for (Index r = 0; r < out; ++r) by_columns.push_back(static_cast<float>(r * in + c));
  }
  const std::vector<Eigen::half> halves(numbers.begin(), numbers.end());
  const std::vector<std::uint16_t> coded(numbers.begin(), numbers.end());
  const std::vector<Index> shape = {out, in};
  const StoredTensor tensors[] = {
      {.shape = shape, .bytes = std::as_bytes(std::span<const float>(numbers))},
      {.dtype = Dtype::f16,
       .shape = shape,
       .bytes = std::as_bytes(std::span<const Eigen::half>(halves))},
      {.shape = shape,
       .bytes = std::as_bytes(std::span<const float>(by_columns)),
       .column_major = true},
      {.shape = shape,
       .bytes = std::as_bytes(std::span<const std::uint16_t>(coded)),
       .decode = decode_integers}};
  for (const StoredTensor& tensor : tensors) {
    Initialiser initialiser(1);
    Linear<float> layer(in, out, initialiser, {.bias = false});
    const LoadOptions options{.sources = [](const std::string&) {
      return std::vector<ParameterSource>{{"w", true}};
    }};
    fovea::load_parameters(layer, {.origin = "x", .tensors = {{"w", tensor}}}, options);
    for (Index i = 0; i < in; ++i) {
      for (Index j = 0; j < out; ++j) {
        ASSERT_EQ(layer.weight.value(i, j), static_cast<float>(j * in + i));
      }
    }
  }
}

struct Twins : fovea::LayerParts<Twins> {
  Parameter<float> first{"w", 1, 1}, second{"w", 1, 1};
  template <class Self, class F>
  static void each_part(Self& self, F&& f) {
    f(self.first);
    f(self.second);
  }
};

TEST(Parameters, WithEqualNamesAreRefused) {
  Twins twins;
  EXPECT_EQ(refusal([&] { (void)fovea::parameters_of(twins); }),
            "parameters_of: two parameters are called 'w'; expected different names (LayerParts "
            "documents the names of parts)");
  const TensorSet set{.origin = "x"};
  EXPECT_EQ(message_of(twins, set),
            "x: two parameters are called 'w' (LayerParts documents the names of parts)");
}

}  // namespace fovea_test::io_parameters
