// SPDX-License-Identifier: MIT
/// \file
/// Tests of core/eigen.hpp: element (b, h, n, d) of every Eigen kind is that of its view.
#include "fovea/core/eigen.hpp"

#include <gtest/gtest.h>

#include <type_traits>
#include <vector>

namespace fovea_test::core_eigen {

using fovea::channels_view;
using fovea::Index;
using fovea::row_view;
using fovea::Shape;
using fovea::View;
using fovea::Viewable;
using fovea::ViewTraits;

template <int Options>
using Tensor = Eigen::Tensor<float, 4, Options>;
template <int Options>
using Matrix = Eigen::Matrix<double, Eigen::Dynamic, Eigen::Dynamic, Options>;

static_assert(Viewable<Tensor<Eigen::RowMajor>> && Viewable<const Tensor<Eigen::ColMajor>&>);
static_assert(Viewable<Eigen::TensorMap<const Tensor<Eigen::RowMajor>>>);
static_assert(Viewable<Matrix<Eigen::RowMajor>> && Viewable<Eigen::Map<Matrix<Eigen::ColMajor>>>);
static_assert(Viewable<Eigen::Matrix3f> && Viewable<Eigen::VectorXf>);
static_assert(Viewable<Eigen::Block<Eigen::MatrixXf>> && Viewable<Eigen::Ref<Eigen::MatrixXf>>);
// Expressions without memory do not convert to views.
static_assert(!Viewable<int> && !Viewable<std::vector<float>>);
static_assert(!Viewable<decltype(Eigen::MatrixXf() + Eigen::MatrixXf())>);
// A const tensor gives a view of const, never a writable one.
static_assert(std::is_convertible_v<const Tensor<Eigen::RowMajor>&, View<const float>>);
static_assert(!std::is_convertible_v<const Tensor<Eigen::RowMajor>&, View<float>>);
static_assert(std::is_convertible_v<Tensor<Eigen::RowMajor>&, View<float>>);
static_assert(!std::is_convertible_v<const Eigen::MatrixXf&, View<float>>);
static_assert(!std::is_convertible_v<Eigen::TensorMap<const Tensor<0>>, View<float>>);

template <int Options>
void check_tensor() {
  Tensor<Options> x(2, 3, 4, 5);
  const View<float> view = x;
  EXPECT_EQ(view.shape(), (Shape{2, 3, 4, 5}));
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 3; ++h) {
      for (Index n = 0; n < 4; ++n) {
        for (Index d = 0; d < 5; ++d) EXPECT_EQ(&view(b, h, n, d), &x(b, h, n, d));
      }
    }
  }
  const Tensor<Options>& constant = x;
  const View<const float> of_constant = constant;
  EXPECT_EQ(of_constant.strides(), view.strides());
  EXPECT_EQ(of_constant.data(), x.data());

  Eigen::TensorMap<Tensor<Options>> map(x.data(), 5, 2, 3, 4);
  const View<float> of_map = map;
  EXPECT_EQ(of_map.shape(), (Shape{5, 2, 3, 4}));
  EXPECT_EQ(&of_map(4, 1, 2, 3), &map(4, 1, 2, 3));
  EXPECT_EQ(&of_map(1, 0, 2, 1), &map(1, 0, 2, 1));
  const Eigen::TensorMap<const Tensor<Options>> const_map(x.data(), 5, 2, 3, 4);
  const View<const float> of_const_map = const_map;
  EXPECT_EQ(of_const_map.strides(), of_map.strides());

  const auto made = ViewTraits<Tensor<Options>>::make({1, 2, 3, 4});
  static_assert(std::is_same_v<std::remove_const_t<decltype(made)>, Tensor<Options>>);
  EXPECT_EQ(made.dimension(3), 4);
}

TEST(EigenView, TensorsOfBothStorageOrders) {
  check_tensor<Eigen::RowMajor>();
  check_tensor<Eigen::ColMajor>();
}

template <class M>
void expect_matrix(M& x) {
  const auto view = ViewTraits<std::remove_const_t<M>>::view(x);
  ASSERT_EQ(view.shape(), (Shape{1, 1, x.rows(), x.cols()}));
  for (Index n = 0; n < x.rows(); ++n) {
    for (Index d = 0; d < x.cols(); ++d) EXPECT_EQ(&view(0, 0, n, d), &x.coeffRef(n, d));
  }
}

template <int Options>
void check_matrix() {
  Matrix<Options> x(6, 7);
  expect_matrix(x);
  auto block = x.block(1, 2, 4, 3);
  expect_matrix(block);
  auto column = x.col(3);
  expect_matrix(column);
  auto row = x.row(2);
  expect_matrix(row);
  Eigen::Ref<Matrix<Options>> ref(x);
  expect_matrix(ref);
  Eigen::Map<Matrix<Options>> map(x.data(), 3, 14);
  expect_matrix(map);
  using Strides = Eigen::Stride<Eigen::Dynamic, Eigen::Dynamic>;
  Eigen::Map<Matrix<Options>, 0, Strides> strided(x.data(), 3, 4, Strides(13, 3));
  expect_matrix(strided);
  auto transposed = x.transpose();
  expect_matrix(transposed);

  const Matrix<Options>& constant = x;
  const View<const double> of_constant = constant;
  EXPECT_EQ(&of_constant(0, 0, 5, 6), &constant.coeffRef(5, 6));
  const auto made = ViewTraits<Matrix<Options>>::make({1, 1, 3, 4});
  EXPECT_EQ(made.rows(), 3);
  EXPECT_EQ(made.cols(), 4);
  EXPECT_EQ(bool(made.IsRowMajor), Options == Eigen::RowMajor);
}

TEST(EigenView, MatricesOfBothStorageOrders) {
  check_matrix<Eigen::RowMajor>();
  check_matrix<Eigen::ColMajor>();
}

TEST(EigenView, FixedSizesAndVectors) {
  Eigen::Matrix<float, 3, 5> fixed;
  expect_matrix(fixed);
  Eigen::Matrix<float, 3, 5, Eigen::RowMajor> fixed_row_major;
  expect_matrix(fixed_row_major);
  Eigen::VectorXf column(4);
  expect_matrix(column);
  Eigen::RowVectorXf row(4);
  expect_matrix(row);
}

TEST(EigenView, EmptyTensorsAreViews) {
  Eigen::Tensor<float, 4> tensor(2, 0, 3, 4);
  EXPECT_EQ(View<float>(tensor).size(), 0);
  Eigen::MatrixXf matrix(0, 4);
  EXPECT_EQ(View<float>(matrix).shape(), (Shape{1, 1, 0, 4}));
}

template <int Options>
void check_rows() {
  Eigen::Tensor<float, 3, Options> lse(2, 3, 4);
  const View<float> view = row_view(lse);
  ASSERT_EQ(view.shape(), (Shape{2, 3, 4, 1}));
  for (Index b = 0; b < 2; ++b) {
    for (Index h = 0; h < 3; ++h) {
      for (Index n = 0; n < 4; ++n) EXPECT_EQ(&view(b, h, n, 0), &lse(b, h, n));
    }
  }
}

template <int Options>
void check_channels() {
  Eigen::Tensor<double, 3, Options> x(2, 3, 4);
  const auto& constant = x;
  const View<double> view = channels_view(x);
  const View<const double> of_constant = channels_view(constant);
  ASSERT_EQ(view.shape(), (Shape{2, 1, 3, 4}));
  ASSERT_EQ(of_constant.shape(), view.shape());
  for (Index b = 0; b < 2; ++b) {
    for (Index i = 0; i < 3; ++i) {
      for (Index c = 0; c < 4; ++c) {
        EXPECT_EQ(&view(b, 0, i, c), &x(b, i, c));
        EXPECT_EQ(&of_constant(b, 0, i, c), &x(b, i, c));
      }
    }
  }
}

TEST(EigenView, ChannelsOfBothStorageOrders) {
  check_channels<Eigen::RowMajor>();
  check_channels<Eigen::ColMajor>();
}

TEST(EigenView, RowsOfBothStorageOrders) {
  check_rows<Eigen::RowMajor>();
  check_rows<Eigen::ColMajor>();
}

}  // namespace fovea_test::core_eigen
