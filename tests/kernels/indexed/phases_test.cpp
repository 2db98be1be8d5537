// SPDX-License-Identifier: MIT
/// \file
/// Attention over lists of keys in phases: the bits of the kernel that computes row after row, at
/// every level, for any width and length of list, any strides, keys cut into blocks anywhere,
/// values into slices of any width, and rows into calls anywhere; what no row sees is poisoned.
#include "fovea/kernels/indexed/phases.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "fovea/kernels/indexed/table.hpp"
#include "support/compare.hpp"
#include "support/fill.hpp"
#include "support/levels.hpp"
#include "support/scratch.hpp"
#include "support/tensor.hpp"

namespace fovea_test::kernels_indexed_phases {

using fovea::KeyLists;
using fovea::KeyNumber;
using fovea::Matrix;
using fovea::padded_size;

struct Sizes {
  Index rows = 150;
  Index keys = 300;
  Index length = 20;  // K
  Index width = 64;
  Index value_width = 64;
  bool causal = false;
  Index innermost = 1;  // stride of columns, and of entries; rows have gaps if it is not 1
};

/// How the phases cut the work.
struct Cut {
  Index block = 300;  // keys
  Index lines = 1;    // cache lines of a slice
  Index rows = 150;   // of a call
};

template <class T>
class Call {
 public:
  explicit Call(const Sizes& sizes)
      : s_(sizes),
        layout_{.innermost = sizes.innermost, .gap = sizes.innermost - 1, .guard = Guard::behind},
        q_({1, 1, s_.rows, s_.width}, layout_),
        k_({1, 1, s_.keys, s_.width}, layout_),
        v_({1, 1, s_.keys, s_.value_width}, layout_),
        list_({1, 1, s_.rows, s_.length}, layout_) {
    q_.fill(gaussian(1));
    k_.fill(gaussian(2));
    v_.fill(gaussian(3));
    list_.fill([](Index, Index, Index, Index) { return -1.0; });
    for (Index r = 0; r < s_.rows; ++r) {
      const Index entries = r % 7 == 2 ? 0 : r % 5 == 3 ? s_.length / 2 : s_.length;
      const Index step = std::max<Index>(1, 2 * s_.keys / s_.length);
      Index key = static_cast<Index>(hash(5, r, 0, 0, 0)) & 7;
      for (Index n = 0; n < entries && key < s_.keys; ++n) {
        list_(0, 0, r, n) = key;
        key += 1 + (static_cast<Index>(hash(6, r, n, 0, 0)) & 0xffff) % step;
      }
    }
    poison();
  }

  struct Result {
    std::vector<T> out, lse;
  };

  Result by_rows() const {
    const Tensor<T> out({1, 1, s_.rows, s_.value_width}, layout_);
    const Tensor<T> lse({1, 1, s_.rows, 1}, layout_);
    Scratch<T> scratch(fovea::indexed_scratch(s_.width, s_.length));
    fovea::IndexedRowsArgs<T> args;
    args.q = stored(read(q_));
    args.k = stored(read(k_));
    args.v = stored(read(v_));
    args.out = output(write(out));
    args.lse = write(lse);
    args.lists = lists();
    args.width = s_.width;
    args.value_width = s_.value_width;
    args.scale = kScale;
    args.count = s_.rows;
    args.scratch = scratch.data();
    fovea::IndexedKernels<T>{}.rows(args);
    return {out.values(), lse.values()};
  }

  Result by_phases(const Cut& cut) const {
    const Tensor<T> out({1, 1, s_.rows, s_.value_width}, layout_);
    const Tensor<T> lse({1, 1, s_.rows, 1}, layout_);
    const Index row = fovea::indexed_entries_row<T>(s_.length);
    Scratch<T> weights(s_.rows * row);
    Scratch<T> inverses(s_.rows);
    std::vector<KeyNumber<T>> numbers(as_size(s_.rows * (row + 2)));
    fovea::IndexedEntries<T> entries{
        weights.data(), numbers.data(),  numbers.data() + s_.rows * row,
        nullptr,        inverses.data(), row};
    entries.computed = entries.counts + s_.rows;
    find_weights(cut, entries, lse);
    sum_values(cut, entries, out);
    EXPECT_TRUE(weights.is_whole());
    EXPECT_TRUE(inverses.is_whole());
    EXPECT_EQ(out.changed_gaps() + lse.changed_gaps(), 0);
    return {out.values(), lse.values()};
  }

 private:
  static constexpr T kScale = T(0.37);
  static constexpr Index kLine = 64 / Index{sizeof(T)};

  Index key_end() const { return s_.keys * 3 / 4; }
  KeyLists lists() const {
    const View<const Index> view = list_.view();
    return {view.data(), view.strides()[2], view.strides()[3], s_.length,
            key_end(),   s_.causal,         s_.keys / 8};
  }
  static Matrix<const T> read(const Tensor<T>& x) {
    return {x.view().data(), x.view().strides()[2], x.view().strides()[3]};
  }
  static Matrix<T> write(const Tensor<T>& x) {
    return {x.view().data(), x.view().strides()[2], x.view().strides()[3]};
  }
  static fovea::IndexedEntries<T> from_row(fovea::IndexedEntries<T> entries, Index r) {
    entries.weights += r * entries.row;
    entries.keys += r * entries.row;
    entries.counts += r;
    entries.computed += r;
    entries.inverses += r;
    return entries;
  }

  /// Copies rows [first, end) of columns [column, column + columns), in two calls.
  static void copy(const Tensor<T>& x, Index first, Index end, Index column, Index columns,
                   Index slice, Scratch<T>& to) {
    Matrix<const T> from = read(x);
    from.data += first * from.row + column * from.column;
    fovea::IndexedPackArgs<T> args;
    args.from = stored(from);
    args.columns = columns;
    args.slice = slice;
    args.to = to.data();
    args.to_rows = end - first;
    args.count = (end - first) / 3;
    fovea::IndexedPhaseKernels<T>{}.pack(args);
    args.first = args.count;
    args.count = end - first - args.count;
    fovea::IndexedPhaseKernels<T>{}.pack(args);
    EXPECT_TRUE(to.is_whole());
  }

  void find_weights(const Cut& cut, const fovea::IndexedEntries<T>& entries,
                    const Tensor<T>& lse) const {
    const Index padded = padded_size(s_.width);
    Index first = 0;
    do {
      const Index end = std::min(first + cut.block, key_end());
      Scratch<T> keys((end - first) * padded);
      copy(k_, first, end, 0, s_.width, padded, keys);
      Scratch<T> scratch(fovea::indexed_logits_scratch(s_.width, s_.length));
      fovea::IndexedLogitsArgs<T> args;
      args.q = stored(read(q_));
      args.lists = lists();
      args.lse = write(lse);
      args.keys = keys.data();
      args.keys_row = padded;
      args.ahead = end != key_end();
      args.key_first = first;
      args.key_end = end;
      args.is_last = end == key_end();
      args.width = s_.width;
      args.scale = kScale;
      args.scratch = scratch.data();
      for (args.first = 0; args.first < s_.rows; args.first += cut.rows) {
        args.count = std::min(cut.rows, s_.rows - args.first);
        args.entries = from_row(entries, args.first);
        fovea::IndexedPhaseKernels<T>{}.logits(args);
      }
      EXPECT_TRUE(scratch.is_whole());
      first = end;
    } while (first < key_end());
  }

  void sum_values(const Cut& cut, const fovea::IndexedEntries<T>& entries,
                  const Tensor<T>& out) const {
    const Index slice = cut.lines * kLine;
    const Index slices = (s_.value_width + slice - 1) / slice;
    for (Index first = 0; first < slices; first += 2) {
      const Index columns = std::min(2 * slice, s_.value_width - first * slice);
      Scratch<T> values(key_end() * 2 * slice);
      copy(v_, 0, key_end(), first * slice, columns, slice, values);
      for (Index n = first; n < std::min(first + 2, slices); ++n) {
        fovea::IndexedValuesArgs<T> args;
        args.values = values.data() + (n - first) * slice * key_end();
        args.slice = slice;
        args.out = output(write(out));
        args.column = n * slice;
        args.width = s_.value_width;
        for (args.first = 0; args.first < s_.rows; args.first += cut.rows) {
          args.count = std::min(cut.rows, s_.rows - args.first);
          args.entries = from_row(entries, args.first);
          fovea::IndexedPhaseKernels<T>{}.values(args);
        }
      }
    }
  }

  /// Keys that no row sees.
  void poison() const {
    std::vector<bool> seen(as_size(s_.keys));
    for (Index r = 0; r < s_.rows; ++r) {
      for (Index n = 0; n < lists().visible(r); ++n) seen[as_size(list_(0, 0, r, n))] = true;
    }
    for (Index j = 0; j < s_.keys; ++j) {
      if (seen[as_size(j)]) continue;
      const T x =
          j % 2 == 0 ? std::numeric_limits<T>::quiet_NaN() : std::numeric_limits<T>::infinity();
      for (Index c = 0; c < s_.width; ++c) k_(0, 0, j, c) = x;
      for (Index c = 0; c < s_.value_width; ++c) v_(0, 0, j, c) = x;
    }
  }

  Sizes s_;
  Layout layout_;
  Tensor<T> q_, k_, v_;
  Tensor<Index> list_;
};

template <class T>
class IndexedPhases : public testing::Test {
 protected:
  static void expect_bits_of_rows(const Sizes& s, const std::vector<Cut>& cuts) {
    const Call<T> call(s);
    at_each_level([&] {
      const auto expected = call.by_rows();
      for (const Cut& cut : cuts) {
        SCOPED_TRACE("K " + std::to_string(s.length) + ", D " + std::to_string(s.width) + ", Dv " +
                     std::to_string(s.value_width) + (s.causal ? ", causal" : "") + ", columns " +
                     std::to_string(s.innermost) + ", blocks of " + std::to_string(cut.block) +
                     ", rows " + std::to_string(cut.rows));
        const auto got = call.by_phases(cut);
        EXPECT_TRUE(same_bits(expected.out, got.out));
        EXPECT_TRUE(same_bits(expected.lse, got.lse));
      }
    });
  }
};
using Scalars = testing::Types<float, double>;
TYPED_TEST_SUITE(IndexedPhases, Scalars);

TYPED_TEST(IndexedPhases, MatchRowsBitwise) {
  for (const Index width : {1, 15, 16, 17, 32, 40, 64, 128, 200}) {
    for (const bool causal : {false, true}) {
      this->expect_bits_of_rows({.width = width, .value_width = width + 3, .causal = causal},
                                {{}, {.block = 37, .lines = 2}});
    }
  }
}

TYPED_TEST(IndexedPhases, BlocksAndSlicesDoNotChangeBits) {
  std::vector<Cut> cuts;
  for (const Index block : {1, 2, 7, 64, 112, 113, 224, 225, 226}) cuts.push_back({.block = block});
  for (const Index lines : {1, 2, 3, 8}) cuts.push_back({.block = 100, .lines = lines});
  for (const Index rows : {1, 3, 127, 128, 129}) cuts.push_back({.block = 60, .rows = rows});
  this->expect_bits_of_rows({}, cuts);
  this->expect_bits_of_rows({.causal = true}, cuts);
}

/// Around vectors, chains of kReductionBlock entries, and the entries that are computed together.
TYPED_TEST(IndexedPhases, ListsOfAnyLength) {
  for (const Index length : {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 200}) {
    this->expect_bits_of_rows({.length = length, .width = 32, .value_width = 20},
                              {{}, {.block = 50, .lines = 2}});
  }
  this->expect_bits_of_rows({.rows = 9, .keys = 2500, .length = 1500, .width = 16},
                            {{.block = 2500}, {.block = 1100}});
}

TYPED_TEST(IndexedPhases, StridedColumnsAndEntries) {
  this->expect_bits_of_rows({.width = 20, .value_width = 33, .innermost = 3},
                            {{}, {.block = 41, .lines = 2}});
}

/// No key is visible at all.
TYPED_TEST(IndexedPhases, NoKeys) {
  this->expect_bits_of_rows({.rows = 5, .keys = 1, .length = 1}, {{}});
}

}  // namespace fovea_test::kernels_indexed_phases
