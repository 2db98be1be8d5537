// SPDX-License-Identifier: MIT
/// \file
/// Every pattern against its reference mask, written from MATHS.md, in sequences of every shape.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "fovea/patterns/block_list.hpp"
#include "fovea/patterns/fixed.hpp"
#include "fovea/patterns/global.hpp"
#include "fovea/patterns/random_blocks.hpp"
#include "fovea/patterns/strided.hpp"
#include "fovea/patterns/window_and_tokens.hpp"
#include "patterns/enumeration.hpp"
#include "support/fill.hpp"

namespace fovea_test::patterns_masks {

using fovea::StridedExtent;
using fovea::Window;

template <class P, class Mask>
void expect_masks(const P& pattern, const std::string& name, const Mask& mask) {
  for_each_shape(130, [&](const SequenceShape& shape) { expect_mask(pattern, shape, name, mask); });
}

/// Rounds down, without the library.
Index block_of(Index i, Index l) {
  Index block = 0;
  while (block * l > i) --block;
  while ((block + 1) * l <= i) ++block;
  return block;
}

/// Calls f(stride, causal, name, ordered): ordered(i, j) is whether j is not after i, if it
/// matters.
template <class F>
void for_each_stride(F&& f) {
  for (const Index l : {1, 2, 3, 8, 16, 64, 100, 500}) {
    for (const bool causal : {true, false}) {
      f(l, causal, "stride " + std::to_string(l) + (causal ? ", causal" : ""),
        [causal](Index i, Index j) { return !causal || j <= i; });
    }
  }
}

TEST(Patterns, StridedOnesMatchTheirMasks) {
  for_each_stride([](Index l, bool causal, const std::string& name, const auto& ordered) {
    expect_masks(fovea::StridedKeys{l, causal}, name,
                 [&](Index i, Index j) { return (i - j) % l == 0 && ordered(i, j); });
    for (const StridedExtent extent : {StridedExtent::formula, StridedExtent::code}) {
      const Index most = extent == StridedExtent::formula ? l : l - 1;
      expect_masks(fovea::strided_local(l, causal, extent), name,
                   [&](Index i, Index j) { return std::abs(i - j) <= most && ordered(i, j); });
      expect_masks(fovea::StridedRemainder{l, causal, extent}, name, [&](Index i, Index j) {
        return (i - j) % l == 0 && std::abs(i - j) > most && ordered(i, j);
      });
    }
  });
}

TEST(Patterns, FixedOnesMatchTheirMasks) {
  for_each_stride([](Index l, bool causal, const std::string& name, const auto& ordered) {
    expect_masks(fovea::fixed_local(l, causal), name,
                 [&](Index i, Index j) { return block_of(i, l) == j / l && ordered(i, j); });
    for (const Index summary : std::set<Index>{1, std::min<Index>(l, 3), l}) {
      for (const Index sub_block : std::set<Index>{0, l / summary - 1}) {
        const fovea::FixedShape shape{l, summary, sub_block, causal};
        const auto in_summary = [&](Index i, Index j) {
          const Index column = j % l - l + (sub_block + 1) * summary;
          return 0 <= column && column < summary && ordered(i, j);
        };
        expect_masks(fovea::FixedSummary{shape}, name, in_summary);
        expect_masks(fovea::FixedRemainder{shape}, name,
                     [&](Index i, Index j) { return in_summary(i, j) && block_of(i, l) != j / l; });
      }
    }
  });
}

TEST(Patterns, BlockWindowsMatchTheirMasks) {
  for_each_stride([](Index block, bool causal, const std::string& name, const auto& ordered) {
    for (const auto& [left, right] : {std::pair<Index, Index>{0, 0}, {1, 1}, {3, 0}}) {
      expect_masks(fovea::BlockWindow{block, left, right, causal}, name,
                   [&, l = left, r = right](Index i, Index j) {
                     const Index apart = j / block - block_of(i, block);
                     return -l <= apart && apart <= r && ordered(i, j);
                   });
    }
  });
}

TEST(Patterns, WindowsMatchTheirMasks) {
  constexpr Index far = Window::kUnbounded;
  expect_masks(fovea::Dense{}, "dense", [](Index, Index) { return true; });
  expect_masks(fovea::Causal{}, "causal", [](Index i, Index j) { return j <= i; });
  for (const Index left : {Index{0}, Index{1}, Index{2}, Index{5}, Index{11}, Index{40}, far}) {
    for (const Index right : {Index{0}, Index{1}, Index{3}, Index{8}, Index{35}, far}) {
      const std::string name = "left " + std::to_string(left) + ", right " + std::to_string(right);
      expect_masks(Window{left, right}, name, [&](Index i, Index j) {
        return (left == far || i - j <= left) && (right == far || j - i <= right);
      });
    }
  }
  for (const Index dilation : {1, 2, 3, 7, 16, 200}) {
    for (const Index left : {Index{0}, Index{1}, Index{5}, far}) {
      for (const Index right : {0, 3}) {
        const std::string name = "dilation " + std::to_string(dilation);
        expect_masks(fovea::DilatedWindow{left, right, dilation}, name, [&](Index i, Index j) {
          const Index steps = (j - i) / dilation;
          return (j - i) % dilation == 0 && (left == far || -steps <= left) && steps <= right;
        });
      }
    }
  }
}

/// Sets of global tokens, and the patterns that have them.
TEST(Patterns, GlobalTokensMatchTheirMasks) {
  using fovea::GlobalRows;
  using fovea::GlobalTokens;
  const auto range = [](Index first, Index end) {
    std::set<Index> all;
    for (Index i = first; i < end; ++i) all.insert(i);
    return all;
  };
  for (const bool causal : {true, false}) {
    const std::string name = causal ? "causal" : "both ways";
    const auto ordered = [&](Index i, Index j) { return !causal || j <= i; };
    const auto expect_tokens = [&](const GlobalTokens& tokens, const std::set<Index>& set) {
      expect_masks(tokens, name, [&](Index i, Index j) {
        return set.count(i) + set.count(j) > 0 && ordered(i, j);
      });
    };
    for (const Index count : {0, 1, 3, 64, 100, 300}) {
      expect_tokens(GlobalTokens::first(count, causal), range(0, count));
    }
    struct Ends {
      Index count, last, end;
    };
    for (const Ends& at : {Ends{3, 60, 70}, Ends{0, 5, 9}, Ends{5, 2, 9}, Ends{5, 5, 9},
                           Ends{9, 3, 5}, Ends{4, 8, 0}, Ends{0, 0, 6}, Ends{0, 0, 0}}) {
      std::set<Index> set = range(0, at.count);
      set.merge(range(at.last, at.end));
      expect_tokens(GlobalTokens::first_and_last(at.count, at.last, at.end, causal), set);
    }
    for (const std::vector<Index>& list :
         {std::vector<Index>{}, {0}, {0, 1, 2}, {5}, {0, 3, 4, 63, 64, 65, 129}, {200}}) {
      const std::set<Index> set(list.begin(), list.end());
      const GlobalTokens tokens = GlobalTokens::at(list, causal);
      expect_tokens(tokens, set);
      for (const Window& window : {Window{9, 4}, Window{0, 0}, Window{70, 3}}) {
        for (const GlobalRows rows :
             {GlobalRows::with_others, GlobalRows::alone, GlobalRows::left_out}) {
          expect_masks(fovea::WindowAndTokens(window, tokens, rows), name, [&](Index i, Index j) {
            const bool is_token = set.count(i) > 0;
            if (rows != GlobalRows::with_others && is_token != (rows == GlobalRows::alone)) {
              return false;
            }
            const bool is_near = i - j <= window.left && j - i <= window.right;
            return (is_near || is_token || set.count(j) > 0) && ordered(i, j);
          });
        }
      }
    }
  }
}

/// Lists of random blocks, which may be given for each block of queries, or drawn by the pattern.
TEST(Patterns, ListedBlocksMatchTheirMasks) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    for (const Index block : {1, 5, 16, 64, 100}) {
      const Index blocks = 300 / block + 1;
      const bool causal = seed % 2 == 1;
      const auto is_listed = [&](Index query, Index key) {
        return query < blocks && key < blocks && hash(seed, query, key, 0, 0) % 5 < seed % 5;
      };
      fovea::BlockRows rows{{0}, {}};
      for (Index query = 0; query < blocks; ++query) {
        for (Index key = 0; key < blocks; ++key) {
          if (is_listed(query, key)) rows.columns.push_back(key);
        }
        rows.offsets.push_back(std::ssize(rows.columns));
      }
      const fovea::BlockList list(block, blocks, rows, causal);
      for (const Index n : {0, 1, 63, 64, 65, 100, 130}) {
        for (const Index m : {0, 1, 40, 130}) {
          for (const CausalAlignment alignment : kAlignments) {
            expect_mask(list, SequenceShape::of(n, m, alignment), "block " + std::to_string(block),
                        [&](Index i, Index j) {
                          return i >= 0 && is_listed(i / block, j / block) && (!causal || j <= i);
                        });
          }
        }
      }
    }
  }
}

/// What is drawn is in random_blocks_test.cpp.
TEST(Patterns, PlansHaveTheRandomBlocks) {
  for (const Index block : {1, 4, 16, 60, 200}) {
    for (const bool causal : {true, false}) {
      for (const Index near : {-1, 1}) {
        for_each_shape(130, [&](const SequenceShape& shape) {
          const fovea::RandomBlocks pattern{
              block, 3, (shape.keys + block - 1) / block, 5, 1, causal, near == 1 ? 1 : 0, near};
          expect_mask(pattern, shape, "block " + std::to_string(block),
                      [&](Index i, Index j) { return pattern.allows(i, j); });
        });
      }
    }
  }
}

}  // namespace fovea_test::patterns_masks
