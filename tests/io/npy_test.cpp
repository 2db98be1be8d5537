// SPDX-License-Identifier: MIT
#include "fovea/io/npy.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <numeric>
#include <span>

#include "support/scratch_folder.hpp"

namespace fovea_test::io_npy {

using fovea::Dtype;
using fovea::Index;
using fovea::parse_npy;
using fovea::StoredTensor;
using fovea::TensorSet;

/// A file of that version with the dictionary and the values as its data.
template <class T>
std::string file(const std::string& dictionary, const std::vector<T>& values, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  const std::size_t size = dictionary.size();
  bytes += static_cast<char>(size & 0xff);
  bytes += static_cast<char>(size >> 8);
  if (version > 1) bytes.append(2, '\0');
  bytes += dictionary;
  const std::span<const std::byte> data = std::as_bytes(std::span<const T>(values));
  for (const std::byte x : data) bytes += static_cast<char>(x);
  return bytes;
}

std::string dictionary(const std::string& dtype, bool fortran, const std::string& shape) {
  std::string text = "{'descr': '" + dtype + "', 'fortran_order': ";
  text += fortran ? "True" : "False";
  return text + ", 'shape': " + shape + ", }          \n";
}

std::span<const std::byte> as_bytes(const std::string& text) {
  return std::as_bytes(std::span<const char>(text));
}

std::string message_of(const std::string& bytes) {
  try {
    (void)parse_npy(as_bytes(bytes), "x.npy");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

template <class T = float>
std::vector<T> values_of(const StoredTensor& tensor) {
  std::vector<T> values(static_cast<std::size_t>(tensor.size()));
  tensor.read(values.data());
  return values;
}

const std::vector<float> kSix = {1, 2, 3, 4, 5, 6};

TEST(Npy, ReadsShapesOfAnyRank) {
  for (const auto& [text, shape] : {std::pair<std::string, std::vector<Index>>{"(2, 3)", {2, 3}},
                                    {"(6,)", {6}},
                                    {"(3, 2, 1, 1, 1)", {3, 2, 1, 1, 1}},
                                    {"(6L,)", {6}},
                                    {"(2L, 3L)", {2, 3}}}) {
    const std::string bytes = file(dictionary("<f4", false, text), kSix);
    const StoredTensor x = parse_npy(as_bytes(bytes), "x");
    EXPECT_EQ(x.shape, shape);
    EXPECT_EQ(x.dtype, Dtype::f32);
    EXPECT_EQ(values_of(x), kSix);
  }
  const std::string scalar = file(dictionary("<f8", false, "()"), std::vector<double>{0.5});
  EXPECT_EQ(values_of<double>(parse_npy(as_bytes(scalar), "x")), (std::vector<double>{0.5}));
  const std::string none = file(dictionary("<f4", false, "(0, 3)"), std::vector<float>{});
  EXPECT_EQ(parse_npy(as_bytes(none), "x").size(), 0);
}

TEST(Npy, ConvertsFortranOrderToRowMajor) {
  const std::string two = file(dictionary("<f4", true, "(2, 3)"), kSix);
  EXPECT_EQ(values_of(parse_npy(as_bytes(two), "x")), (std::vector<float>{1, 3, 5, 2, 4, 6}));
  std::vector<float> values(24);
  for (std::size_t i = 0; i < 24; ++i) values[i] = static_cast<float>(i);
  const std::string three = file(dictionary("<f4", true, "(2, 3, 4)"), values);
  const auto y = values_of(parse_npy(as_bytes(three), "x"));
  // Element [h, n, d] is at h + 2 n + 6 d.
  for (std::size_t h = 0; h < 2; ++h) {
    for (std::size_t n = 0; n < 3; ++n) {
      for (std::size_t d = 0; d < 4; ++d) {
        EXPECT_EQ(y[h * 12 + n * 4 + d], static_cast<float>(h + 2 * n + 6 * d));
      }
    }
  }
}

TEST(Npy, ReadsEveryTypeInEveryVersion) {
  const auto read = [](const std::string& type, const auto& values, int version) {
    const std::string shape = "(" + std::to_string(values.size()) + ",)";
    const std::string bytes = file(dictionary(type, false, shape), values, version);
    return values_of(parse_npy(as_bytes(bytes), "x"));
  };
  const std::vector<float> expected = {3, 0, 1};
  EXPECT_EQ(read("<f8", std::vector<double>{3, 0, 1}, 2), expected);
  EXPECT_EQ(read("<f2", std::vector<std::uint16_t>{0x4200, 0, 0x3c00}, 1), expected);
  EXPECT_EQ(read("<i8", std::vector<std::int64_t>{3, 0, 1}, 3), expected);
  EXPECT_EQ(read("<u4", std::vector<std::uint32_t>{3, 0, 1}, 1), expected);
  EXPECT_EQ(read("|b1", std::vector<std::uint8_t>{3, 0, 1}, 1), expected);
  // More than are converted at once.
  std::vector<double> many(3000);
  std::iota(many.begin(), many.end(), 0.0);
  EXPECT_EQ(read("<f8", many, 1), std::vector<float>(many.begin(), many.end()));
}

TEST(Npy, ReportsTheFileAndTheError) {
  EXPECT_EQ(message_of("hello"), "x.npy: it is not a .npy file");
  EXPECT_EQ(message_of(""), "x.npy: it is not a .npy file");
  const auto refused = [](const std::string& dtype, const std::string& shape) {
    return message_of(file(dictionary(dtype, false, shape), kSix));
  };
  EXPECT_NE(refused(">f4", "(2, 3)").find("little-endian"), std::string::npos);
  EXPECT_NE(refused("<c8", "(3,)").find("'<c8'"), std::string::npos);
  EXPECT_NE(refused("", "(3,)").find("its type is ''"), std::string::npos);
  EXPECT_NE(refused("<f4", "(2, 4)").find("24 bytes of data; expected 32"), std::string::npos);
  EXPECT_NE(refused("<f4", "(2, -3)").find("not a tuple of sizes"), std::string::npos);
  EXPECT_NE(refused("<f4", "(4000000000, 4000000000)").find("too large"), std::string::npos);
  EXPECT_NE(refused("<f4", "(0, 4000000000, 4000000000)").find("too large"), std::string::npos);
  for (const char* shape : {"(2 3)", "(6)", "(,6)", "(2,,3)", "(6,", "(6l,)", "6,"}) {
    EXPECT_TRUE(refused("<f4", shape).starts_with("x.npy: its ")) << shape;
  }
  EXPECT_NE(message_of(file("{'descr': [('a', '<f4')]}", kSix)).find("'descr'"), std::string::npos);
  const std::string whole = "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)}";
  EXPECT_EQ(message_of(file(whole, kSix)), "accepted");
  for (const std::string& header :
       {whole + "{}", whole + std::string(1, '\0'), whole.substr(0, whole.size() - 1),
        whole.substr(0, whole.size() - 1) + ", 'more': 1}",
        whole.substr(0, whole.size() - 1) + ", 'shape': (6,)}", "\xef\xbb\xbf" + whole,
        std::string("{'descr': '<f4', 'shape': (6,)}"),
        std::string("{'descr': '<f4', 'shape': (6,), 'shape': (6,)}"),
        std::string("{'descr' '<f4', 'fortran_order': False, 'shape': (6,)}"),
        std::string("{'x': \"'descr': '<f4', 'fortran_order': False, 'shape': (6,)\"}")}) {
    EXPECT_EQ(message_of(file(header, kSix)),
              "x.npy: its header is not a dictionary with 'descr', 'fortran_order' and 'shape'")
        << header;
  }
  EXPECT_NE(message_of(file(dictionary("<f4", false, "(2, 3)"), kSix, 4)).find("version"),
            std::string::npos);
}

TEST(Npy, RefusesTruncatedFiles) {
  const std::string whole = file(dictionary("<f4", false, "(2, 3)"), kSix);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(message_of(whole.substr(0, size)), "accepted") << size;
  }
  EXPECT_EQ(message_of(whole), "accepted");
  EXPECT_NE(message_of(whole + "x"), "accepted");
}

TEST(Npy, ReadsWhatItWrote) {
  const ScratchFolder folder;
  for (const auto& shape : {std::vector<Index>{2, 3}, {6}, {1, 6, 1}, {}}) {
    for (const bool column_major : {false, true}) {
      const std::size_t count = shape.empty() ? 1 : 6;
      const StoredTensor x{.dtype = Dtype::f32,
                           .shape = shape,
                           .bytes = std::as_bytes(std::span(kSix).first(count)),
                           .column_major = column_major};
      const std::string path = folder / "x.npy";
      fovea::write_npy(path, x);
      const TensorSet read = fovea::read_npy(path);
      EXPECT_EQ(read.at("tensor").shape, shape);
      EXPECT_EQ(values_of(read.at("tensor")), values_of(x));
      EXPECT_EQ((std::filesystem::file_size(path) - count * 4) % 64, 0u) << "where data begins";
    }
  }
  EXPECT_THROW(fovea::write_npy(folder / "y.npy", {.dtype = Dtype::bf16, .shape = {0}}),
               std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(folder / "y.npy"));
}

TEST(Npy, ADirectoryHasOneTensorPerFile) {
  const ScratchFolder folder;
  const std::string inner = folder / "inner";
  TensorSet set;
  for (const char* name : {"a.weight", "b"}) {
    set.tensors[name] = {
        .dtype = Dtype::f32, .shape = {3, 2}, .bytes = std::as_bytes(std::span<const float>(kSix))};
  }
  fovea::write_npy_folder(inner, set);
  std::ofstream(inner + "/readme.txt") << "no tensor";
  const TensorSet read = fovea::read_npy_folder(inner);
  ASSERT_EQ(read.tensors.size(), 2u);
  EXPECT_EQ(values_of(read.at("a.weight")), kSix);
  EXPECT_EQ(values_of(read.at("b")), kSix);
  EXPECT_THROW((void)read.at("c"), std::runtime_error);
  EXPECT_THROW((void)fovea::read_npy_folder(folder / "none"), std::runtime_error);
  EXPECT_THROW((void)fovea::read_npy(folder / "none"), std::runtime_error);
  set.tensors["../c"] = set.tensors["b"];
  EXPECT_THROW(fovea::write_npy_folder(folder / "other", set), std::runtime_error);
  EXPECT_FALSE(std::filesystem::exists(folder / "other"));
}

}  // namespace fovea_test::io_npy
