// SPDX-License-Identifier: MIT
// The reader of .npy files: layouts, orders, and a clear refusal of everything else.
#include "bench/io/npy.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace {

using bench::NpyTensor;
using bench::parse_npy;

/// A file of that version with the dictionary and the values as its data.
template <class T>
std::string file(const std::string& dictionary, const std::vector<T>& values, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(version);
  bytes += '\0';
  const std::size_t size = dictionary.size();
  bytes += static_cast<char>(size & 0xff);
  bytes += static_cast<char>(size >> 8);
  if (version == 2) bytes.append(2, '\0');
  bytes += dictionary;
  std::string data(values.size() * sizeof(T), '\0');
  std::memcpy(data.data(), values.data(), data.size());
  return bytes + data;
}

std::string dictionary(const std::string& dtype, bool fortran, const std::string& shape) {
  std::string text = "{'descr': '" + dtype + "', 'fortran_order': ";
  text += fortran ? "True" : "False";
  return text + ", 'shape': " + shape + ", }          \n";
}

std::string message_of(const std::string& bytes) {
  try {
    parse_npy(bytes, "x.npy");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

const std::vector<float> kSix = {1, 2, 3, 4, 5, 6};

TEST(Npy, ReadsAMatrixAsOneHead) {
  const NpyTensor x = parse_npy(file(dictionary("<f4", false, "(2, 3)"), kSix), "x.npy");
  EXPECT_EQ(x.shape, (fovea::Shape{1, 1, 2, 3}));
  EXPECT_EQ(x.values, kSix);
  EXPECT_EQ(x.dtype, "<f4");
}

TEST(Npy, ReadsThreeAndFourDimensions) {
  const auto three = parse_npy(file(dictionary("<f4", false, "(1, 2, 3)"), kSix), "x");
  EXPECT_EQ(three.shape, (fovea::Shape{1, 1, 2, 3}));
  const auto four = parse_npy(file(dictionary("<f4", false, "(3, 2, 1, 1)"), kSix), "x");
  EXPECT_EQ(four.shape, (fovea::Shape{3, 2, 1, 1}));
}

TEST(Npy, TurnsFortranOrderIntoRowMajor) {
  const auto x = parse_npy(file(dictionary("<f4", true, "(2, 3)"), kSix), "x");
  EXPECT_EQ(x.values, (std::vector<float>{1, 3, 5, 2, 4, 6}));
  std::vector<float> values(24);
  for (std::size_t i = 0; i < 24; ++i) values[i] = static_cast<float>(i);
  const auto y = parse_npy(file(dictionary("<f4", true, "(2, 3, 4)"), values), "x");
  // Element [h, n, d] stands at h + 2 n + 6 d.
  EXPECT_EQ(y.values[0], 0);
  EXPECT_EQ(y.values[1], 6);
  EXPECT_EQ(y.values[4], 2);
  EXPECT_EQ(y.values[12], 1);
  EXPECT_EQ(y.values[23], 23);
}

TEST(Npy, ReadsDoublesAndVersionTwo) {
  const std::vector<double> values = {0.5, -1.25};
  const auto x = parse_npy(file(dictionary("<f8", false, "(1, 2)"), values, 2), "x");
  EXPECT_EQ(x.values, (std::vector<float>{0.5f, -1.25f}));
}

TEST(Npy, NamesTheFileAndWhatIsWrong) {
  EXPECT_EQ(message_of("hello"), "x.npy: it is no .npy file");
  EXPECT_EQ(message_of(""), "x.npy: it is no .npy file");
  const auto refused = [](const std::string& dtype, const std::string& shape) {
    return message_of(file(dictionary(dtype, false, shape), kSix));
  };
  EXPECT_NE(refused(">f4", "(2, 3)").find("little-endian"), std::string::npos);
  EXPECT_NE(refused("<i8", "(2, 3)").find("'<i8'"), std::string::npos);
  EXPECT_NE(refused("<f4", "(6,)").find("1 dimensions"), std::string::npos);
  EXPECT_NE(refused("<f4", "(1, 1, 1, 2, 3)").find("5 dimensions"), std::string::npos);
  EXPECT_NE(refused("<f4", "(2, 4)").find("24 bytes of data; expected 32"), std::string::npos);
  EXPECT_NE(refused("<f4", "(0, 3)").find("dimension of 0"), std::string::npos);
  EXPECT_NE(refused("<f4", "(2, -3)").find("no sizes"), std::string::npos);
  EXPECT_NE(refused("<f4", "(4000000000, 4000000000)").find("too large"), std::string::npos);
  EXPECT_NE(message_of(file("{'descr': [('a', '<f4')]}", kSix)).find("'descr'"), std::string::npos);
  EXPECT_NE(message_of(file(dictionary("<f4", false, "(2, 3)"), kSix, 3)).find("version"),
            std::string::npos);
}

TEST(Npy, RefusesEveryBeginningOfAFile) {
  const std::string whole = file(dictionary("<f4", false, "(2, 3)"), kSix);
  for (std::size_t size = 0; size < whole.size(); ++size) {
    EXPECT_NE(message_of(whole.substr(0, size)), "accepted") << size;
  }
  EXPECT_EQ(message_of(whole), "accepted");
  EXPECT_NE(message_of(whole + "x"), "accepted");
}

}  // namespace
