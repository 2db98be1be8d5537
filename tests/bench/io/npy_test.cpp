// SPDX-License-Identifier: MIT
// Heads from .npy files: which shapes and types are taken.
#include "bench/io/npy.hpp"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

namespace fovea_test::bench_io_npy {

using bench::heads_of;
using bench::NpyTensor;
using fovea::Dtype;
using fovea::Index;
using fovea::StoredTensor;

const std::vector<float> kSix = {1, 2, 3, 4, 5, 6};

StoredTensor stored(std::vector<Index> shape, bool column_major = false) {
  return {.dtype = Dtype::f32,
          .shape = std::move(shape),
          .bytes = std::as_bytes(std::span<const float>(kSix)),
          .column_major = column_major};
}

std::string message_of(const StoredTensor& tensor) {
  try {
    (void)heads_of(tensor, "x.npy");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Npy, HeadsHaveTwoToFourDimensions) {
  const NpyTensor two = heads_of(stored({2, 3}), "x");
  EXPECT_EQ(two.shape, (fovea::Shape{1, 1, 2, 3}));
  EXPECT_EQ(two.values, kSix);
  EXPECT_EQ(heads_of(stored({1, 2, 3}), "x").shape, (fovea::Shape{1, 1, 2, 3}));
  EXPECT_EQ(heads_of(stored({3, 2, 1, 1}), "x").shape, (fovea::Shape{3, 2, 1, 1}));
  EXPECT_EQ(message_of(stored({6})),
            "x.npy: it has 1 dimensions; expected [B, H, N, D], [H, N, D] or [N, D]");
  EXPECT_NE(message_of(stored({1, 1, 1, 2, 3})).find("5 dimensions"), std::string::npos);
}

TEST(Npy, HeadsAreRowMajor) {
  EXPECT_EQ(heads_of(stored({2, 3}, true), "x").values, (std::vector<float>{1, 3, 5, 2, 4, 6}));
}

TEST(Npy, HeadsMustBeFloatingPointAndNotEmpty) {
  EXPECT_EQ(message_of({.dtype = Dtype::f32, .shape = {0, 3}}), "x.npy: it has a dimension of 0");
  StoredTensor integers = stored({2, 3});
  integers.dtype = Dtype::i32;
  EXPECT_EQ(message_of(integers),
            "x.npy: its type is '<i4'; expected '<f2', '<f4' or '<f8', floating point");
}

}  // namespace fovea_test::bench_io_npy
