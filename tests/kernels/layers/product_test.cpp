// SPDX-License-Identifier: MIT
/// \file
/// Matrix products of layers against sums in double, at every level: all supported layouts of
/// operands, sizes around those of panels, reduction blocks and tiles.
#include "fovea/core/eigen.hpp"
#include "fovea/kernels/layers/table.hpp"

#include "kernels/layers/drawn_rows.hpp"

namespace fovea_test::kernels_layers_product {

using fovea::Matrix;

template <class T>
class Product : public testing::Test {};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(Product, Scalars);

struct Sizes {
  Index rows;
  Index columns;
  Index steps;
};

constexpr Sizes kSizes[] = {{1, 1, 1},    {1, 40, 64},  {1, 40, 101},  {2, 37, 103}, {3, 33, 131},
                            {2, 40, 0},   {5, 7, 0},    {6, 16, 63},   {13, 9, 65},  {96, 33, 128},
                            {97, 8, 130}, {200, 17, 3}, {10, 530, 70}, {2, 150, 70}};

/// A product of drawn operands; rows of a, and of b, are steps if they are `across`.
template <class T>
struct DrawnProduct {
  DrawnProduct(const Sizes& sizes, bool a_across, bool b_across)
      : size(sizes),
        a(a_across ? DrawnRows<T>(size.steps, size.rows, 1)
                   : DrawnRows<T>(size.rows, size.steps, 1)),
        b(b_across ? DrawnRows<T>(size.columns, size.steps, 2)
                   : DrawnRows<T>(size.steps, size.columns, 2)),
        bias(1, size.columns, 3),
        a_is_across(a_across),
        b_is_across(b_across) {}

  Matrix<const T> seen(const DrawnRows<T>& m, bool across) const {
    return across ? Matrix<const T>{m.data(), 1, m.row} : Matrix<const T>{m.data(), m.row, 1};
  }
  fovea::ProductArgs<T> args(DrawnRows<T>& to) const {
    return {.a = seen(a, a_is_across),
            .b = fovea::stored(seen(b, b_is_across)),
            .to = to.data(),
            .to_row = to.row,
            .rows = size.rows,
            .columns = size.columns,
            .steps = size.steps};
  }
  testing::AssertionResult holds(const DrawnRows<T>& to, Index i, Index j, double before) const {
    double sum = before;
    double magnitude = std::abs(before);
    for (Index s = 0; s < size.steps; ++s) {
      const double x = a_is_across ? a(s, i) : a(i, s);
      const double term = x * (b_is_across ? b(j, s) : b(s, j));
      sum += term;
      magnitude += std::abs(term);
    }
    return is_near(to(i, j), sum, magnitude, 20);
  }

  Sizes size;
  DrawnRows<T> a;
  DrawnRows<T> b;
  DrawnRows<T> bias;
  bool a_is_across;
  bool b_is_across;
};

template <class F>
void for_each_form(F&& f) {
  for (const bool a_across : {false, true}) {
    for (const bool b_across : {false, true}) f(a_across, b_across);
  }
}

TYPED_TEST(Product, IsTheSumOfProducts) {
  using T = TypeParam;
  for (const Sizes& size : kSizes) {
    for_each_form([&](bool a_across, bool b_across) {
      const DrawnProduct<T> product(size, a_across, b_across);
      at_each_level([&] {
        DrawnRows<T> plain(size.rows, size.columns, 4);
        fovea::ProductKernels<T>().multiply(product.args(plain));
        const DrawnRows<T> before(size.rows, size.columns, 5);
        DrawnRows<T> added = before;
        fovea::ProductArgs<T> args = product.args(added);
        args.add = true;
        fovea::ProductKernels<T>().multiply(args);
        DrawnRows<T> biased(size.rows, size.columns, 6);
        args = product.args(biased);
        args.bias = product.bias.data();
        fovea::ProductKernels<T>().multiply(args);
        for (Index i = 0; i < size.rows; ++i) {
          for (Index j = 0; j < size.columns; ++j) {
            ASSERT_TRUE(product.holds(plain, i, j, 0)) << i << ", " << j;
            ASSERT_TRUE(product.holds(added, i, j, before(i, j))) << i << ", " << j;
            ASSERT_TRUE(product.holds(biased, i, j, product.bias(0, j))) << i << ", " << j;
          }
        }
        EXPECT_TRUE(plain.has_its_gaps() && added.has_its_gaps() && biased.has_its_gaps());
      });
    });
  }
}

/// However many other rows and columns are computed, and for any strides.
TYPED_TEST(Product, ElementsDependOnTheirRowAndColumnOnly) {
  using T = TypeParam;
  const Sizes all{101, 45, 150};
  for_each_form([&](bool a_across, bool b_across) {
    const DrawnProduct<T> product(all, a_across, b_across);
    at_each_level([&] {
      DrawnRows<T> whole(all.rows, all.columns, 4);
      fovea::ProductKernels<T>().multiply(product.args(whole));
      for (const Index i : {0, 5, 95, 96, 98}) {
        for (const Index j : {0, 7, 15, 16, 44}) {
          for (const Index rows : {1, 2, 3}) {
            const Index columns = all.columns - j;
            DrawnRows<T> part(rows, columns, 5);
            fovea::ProductArgs<T> args = product.args(part);
            args.a.data += i * args.a.row;
            fovea::Matrix<const T> b = product.seen(product.b, b_across);
            b.data += j * b.column;
            args.b = fovea::stored(b);
            args.rows = rows;
            args.columns = columns;
            fovea::ProductKernels<T>().multiply(args);
            for (Index r = 0; r < rows; ++r) {
              for (Index c = 0; c < columns; ++c) {
                ASSERT_EQ(part(r, c), whole(i + r, j + c)) << rows << " rows, " << r << ", " << c;
              }
            }
          }
        }
      }
    });
  });
}

template <class W>
class StoredProduct : public testing::Test {};
using Stored = testing::Types<Eigen::bfloat16, Eigen::half>;
TYPED_TEST_SUITE(StoredProduct, Stored);

/// 16-bit weights give the bits of the equal floats, in every kernel, for few rows and for many.
TYPED_TEST(StoredProduct, HasTheBitsOfItsFloats) {
  using W = TypeParam;
  constexpr fovea::Storage kStored = fovea::kStorage<W>;
  for (const Sizes& size : kSizes) {
    for_each_form([&](bool a_across, bool b_across) {
      DrawnProduct<float> product(size, a_across, b_across);
      std::vector<W> weights;
      for (float& x : product.b.at) {
        weights.push_back(static_cast<W>(x));
        x = static_cast<float>(weights.back());
      }
      at_each_level([&] {
        DrawnRows<float> expected(size.rows, size.columns, 4);
        const fovea::ProductArgs<float> args = product.args(expected);
        fovea::ProductKernels<float>().multiply(args);
        DrawnRows<float> got(size.rows, size.columns, 5);
        fovea::ProductKernels<float, kStored>().multiply(
            {.a = args.a,
             .b = {weights.data(), args.b.row, args.b.column},
             .to = got.data(),
             .to_row = got.row,
             .rows = size.rows,
             .columns = size.columns,
             .steps = size.steps});
        for (Index i = 0; i < size.rows; ++i) {
          for (Index j = 0; j < size.columns; ++j) {
            ASSERT_EQ(got(i, j), expected(i, j)) << i << ", " << j;
          }
        }
        EXPECT_TRUE(got.has_its_gaps());
      });
    });
  }
}

TYPED_TEST(Product, RowsAreSummed) {
  using T = TypeParam;
  for (const Index width : {1, 4, 7, 16, 70}) {
    for (const Index count : {0, 1, 33}) {
      const DrawnRows<T> rows(count, width, 1);
      at_each_level([&] {
        const DrawnRows<T> before(1, width, 2);
        DrawnRows<T> to = before;
        fovea::LayerKernels<T>().add_rows({rows.data(), rows.row, count, width, to.data()});
        for (Index c = 0; c < width; ++c) {
          T sum = before(0, c);
          for (Index i = 0; i < count; ++i) sum += rows(i, c);
          ASSERT_EQ(to(0, c), sum) << c << " of " << width;
        }
        EXPECT_TRUE(to.has_its_gaps());
      });
    }
  }
}

}  // namespace fovea_test::kernels_layers_product
