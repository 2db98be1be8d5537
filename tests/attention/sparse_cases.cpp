// SPDX-License-Identifier: MIT
/// \file
/// The sparse operators in the conformance suite, with reference masks written from MATHS.md,
/// section 3.
#include <cstdlib>
#include <string>
#include <vector>

#include "attention/big_bird_mask.hpp"
#include "attention/cases.hpp"
#include "attention/sparse_masks.hpp"

namespace fovea_test {
namespace {

/// A reference mask of head, position and key.
template <class F>
ReferenceMask by_positions(F&& f, fovea::CausalAlignment alignment) {
  return [f, alignment](const Pair& p) { return f(p.h, p.position(alignment), p.j); };
}

/// The first `count` positions see all keys, and all see them.
bool global_pair(Index i, Index j, Index count) { return (0 <= i && i < count) || j < count; }

template <class T, class Op, class F>
Case<T> sparse_case(const std::string& name, const Op& op, F&& reference_mask,
                    const Extras& extras = {}) {
  Case<T> made =
      softmax_case<T>(name, op, by_positions(reference_mask, op.options.alignment), extras);
  const fovea::AnyPattern pattern = op.pattern(0, {64, 64, 0});
  made.in_runs = true;
  made.staged = pattern.pass_count() > 1;
  made.by_head = op.pattern_period(1 << 20) > 1;
  return made;
}

template <class T>
std::vector<Case<T>> strided_cases() {
  using fovea::HeadAssignment;
  using fovea::StridedAttention;
  constexpr fovea::Dropout some{.probability = 0.3, .seed = 0x123456789abcdef};
  const auto separate = [](Index l) {
    return [=](Index h, Index i, Index j) {
      return h % 2 == 0 ? strided_first(i, j, l) : strided_second(i, j, l);
    };
  };
  const auto merged = [](Index l) {
    return
        [=](Index, Index i, Index j) { return strided_first(i, j, l) || strided_second(i, j, l); };
  };
  const auto both_ways = [](Index, Index i, Index j) {
    return std::abs(i - j) < 12 || (i - j) % 12 == 0;
  };
  return {
      sparse_case<T>("strided_top_left",
                     StridedAttention{{.stride = 5,
                                       .heads = HeadAssignment::only_second,
                                       .alignment = fovea::CausalAlignment::top_left}},
                     [](Index, Index i, Index j) { return strided_second(i, j, 5); }),
      sparse_case<T>("strided_key_length",
                     StridedAttention{{.stride = 11,
                                       .heads = HeadAssignment::merged,
                                       .alignment = fovea::CausalAlignment::key_length,
                                       .dropout = some}},
                     merged(11), {.alibi = true}),
      sparse_case<T>("strided", StridedAttention{{.stride = 7}}, separate(7)),
      sparse_case<T>("strided_first",
                     StridedAttention{{.stride = 40, .heads = HeadAssignment::only_first}},
                     [](Index, Index i, Index j) { return strided_first(i, j, 40); }),
      sparse_case<T>("strided_second",
                     StridedAttention{{.stride = 3, .heads = HeadAssignment::only_second}},
                     [](Index, Index i, Index j) { return strided_second(i, j, 3); }),
      sparse_case<T>("strided_merged",
                     StridedAttention{{.stride = 11, .heads = HeadAssignment::merged}}, merged(11)),
      sparse_case<T>("strided_merged_128",
                     StridedAttention{{.stride = 128, .heads = HeadAssignment::merged}},
                     merged(128)),
      sparse_case<T>("strided_1", StridedAttention{{.stride = 1, .heads = HeadAssignment::merged}},
                     merged(1)),
      sparse_case<T>("strided_both_ways",
                     StridedAttention{{.stride = 12,
                                       .heads = HeadAssignment::merged,
                                       .causal = false,
                                       .extent = fovea::StridedExtent::code}},
                     both_ways),
      sparse_case<T>(
          "strided_everything",
          StridedAttention{
              {.stride = 6, .heads = HeadAssignment::merged, .soft_cap = 2.5, .dropout = some}},
          merged(6), {.bias = "hqk", .mask = "bqk", .alibi = true, .sink = true}),
      sparse_case<T>("strided_bias_sink", StridedAttention{{.stride = 9}}, separate(9),
                     {.bias = "bhqk", .sink = true}),
      // Heads of different patterns share a bias.
      sparse_case<T>("strided_bias_of_all_heads", StridedAttention{{.stride = 5}}, separate(5),
                     {.bias = "qk"}),
  };
}

template <class T>
std::vector<Case<T>> fixed_cases() {
  using fovea::FixedAttention;
  using fovea::HeadAssignment;
  const auto merged = [](Index l, Index c) {
    return
        [=](Index, Index i, Index j) { return fixed_first(i, j, l) || fixed_second(i, j, l, c); };
  };
  return {
      sparse_case<T>("fixed", FixedAttention{{.stride = 16, .summary = 3}},
                     [](Index h, Index i, Index j) {
                       return h % 2 == 0 ? fixed_first(i, j, 16) : fixed_second(i, j, 16, 3);
                     }),
      sparse_case<T>(
          "fixed_second",
          FixedAttention{{.stride = 10, .summary = 2, .heads = HeadAssignment::only_second}},
          [](Index, Index i, Index j) { return fixed_second(i, j, 10, 2); }),
      sparse_case<T>("fixed_merged",
                     FixedAttention{{.stride = 20, .summary = 4, .heads = HeadAssignment::merged}},
                     merged(20, 4)),
      sparse_case<T>("fixed_key_length",
                     FixedAttention{{.stride = 20,
                                     .summary = 4,
                                     .heads = HeadAssignment::merged,
                                     .alignment = fovea::CausalAlignment::key_length}},
                     merged(20, 4)),
      sparse_case<T>("fixed_merged_bias_of_keys",
                     FixedAttention{{.stride = 9, .summary = 2, .heads = HeadAssignment::merged}},
                     merged(9, 2), {.bias = "k"}),
      sparse_case<T>("fixed_sub_blocks",
                     FixedAttention{{.stride = 13,
                                     .summary = 3,
                                     .heads = HeadAssignment::merged,
                                     .sub_block_per_head = true}},
                     [](Index h, Index i, Index j) {
                       return fixed_first(i, j, 13) || fixed_second(i, j, 13, 3, h % 4);
                     }),
      sparse_case<T>(
          "fixed_both_ways",
          FixedAttention{
              {.stride = 8, .summary = 8, .heads = HeadAssignment::only_second, .causal = false}},
          [](Index, Index, Index) { return true; }),
      sparse_case<T>(
          "fixed_merged_mask_alibi",
          FixedAttention{
              {.stride = 12, .summary = 1, .heads = HeadAssignment::merged, .causal = false}},
          [](Index, Index i, Index j) {
            return block_of(i, 12) == block_of(j, 12) || j % 12 == 11;
          },
          {.mask = "hqk", .alibi = true}),
  };
}

template <class T>
std::vector<Case<T>> composed_cases() {
  using fovea::BigBirdAttention;
  using fovea::LongformerAttention;
  using fovea::SparseAttention;
  const auto longformer = [](Index, Index i, Index j) {
    return (i - 9 <= j && j <= i + 30) || global_pair(i, j, 3);
  };
  const auto causal_longformer = [](Index, Index i, Index j) {
    return j <= i && (i - 70 <= j || global_pair(i, j, 20));
  };
  const auto bird_case = [](const char* name, const fovea::BigBirdOptions& options,
                            const Extras& extras = {}) {
    Case<T> made = softmax_case<T>(name, BigBirdAttention(options), big_bird_mask(options), extras);
    made.in_runs = made.by_head = true;
    return made;
  };
  const fovea::BigBirdOptions bird = {
      .block = 16, .global_blocks = 1, .random_blocks = 2, .seed = 5};
  fovea::BigBirdOptions causal_bird = bird;
  causal_bird.causal = true;
  fovea::BigBirdOptions placed_bird = bird;
  placed_bird.alignment = fovea::CausalAlignment::key_length;
  placed_bird.last_global_blocks = 1;
  fovea::BigBirdOptions last_bird = bird;
  last_bird.last_global_blocks = 2;
  return {
      bird_case("big_bird_last_global", last_bird),
      sparse_case<T>("longformer", LongformerAttention{{.left = 9, .right = 30, .first_global = 3}},
                     longformer),
      sparse_case<T>("longformer_causal",
                     LongformerAttention{{.left = 70, .first_global = 20, .causal = true}},
                     causal_longformer),
      sparse_case<T>("longformer_bias_sink",
                     LongformerAttention{{.left = 9, .right = 30, .first_global = 3}}, longformer,
                     {.bias = "bhqk", .sink = true}),
      bird_case("big_bird", bird),
      bird_case("big_bird_causal", causal_bird),
      bird_case("big_bird_key_length", placed_bird),
      sparse_case<T>("longformer_key_length",
                     LongformerAttention{{.left = 70,
                                          .first_global = 20,
                                          .causal = true,
                                          .alignment = fovea::CausalAlignment::key_length}},
                     causal_longformer),
      bird_case("big_bird_mask_alibi", bird, {.mask = "bqk", .alibi = true}),
      sparse_case<T>(
          "dilated", SparseAttention{{.patterns = {fovea::DilatedWindow{4, 2, 3}}, .scale = 0.3}},
          [](Index, Index i, Index j) { return (i - j) % 3 == 0 && i - 12 <= j && j <= i + 6; }),
      sparse_case<T>("block_list_and_global",
                     SparseAttention{{.patterns = {fovea::BlockList(
                                                       24, 200, {{0, 2, 3, 6}, {0, 2, 1, 0, 1, 5}}),
                                                   fovea::GlobalTokens::at({1, 2, 50})}}},
                     [](Index h, Index i, Index j) {
                       const auto global = [](Index x) { return x == 1 || x == 2 || x == 50; };
                       if (h % 2 == 1) return global(i) || global(j);
                       const Index column = j / 24;
                       switch (block_of(i, 24)) {
                         case 0:
                           return column == 0 || column == 2;
                         case 1:
                           return column == 1;
                         case 2:
                           return column == 0 || column == 1 || column == 5;
                         default:
                           return false;
                       }
                     }),
  };
}

constexpr Index kHuge = Index{1} << 60;

/// Strides, summaries and windows.
template <class T>
std::vector<Case<T>> oversized_strides() {
  using fovea::FixedAttention;
  using fovea::HeadAssignment;
  using fovea::SparseAttention;
  using fovea::StridedAttention;
  constexpr auto merged = HeadAssignment::merged;
  constexpr auto only_second = HeadAssignment::only_second;
  constexpr Index million = 1'000'000;
  const auto before = [](Index, Index i, Index j) { return j <= i; };
  const auto own = [](Index, Index i, Index j) { return i == j; };
  return {
      sparse_case<T>("fixed", FixedAttention{{.stride = million, .summary = million}}, before),
      sparse_case<T>("fixed_merged",
                     FixedAttention{{.stride = million, .summary = million - 1, .heads = merged}},
                     before),
      sparse_case<T>(
          "fixed_merged_both_ways",
          FixedAttention{
              {.stride = million, .summary = million - 7, .heads = merged, .causal = false}},
          [](Index, Index, Index) { return true; }),
      sparse_case<T>("fixed_second",
                     FixedAttention{{.stride = kHuge, .summary = kHuge - 20, .heads = only_second}},
                     [](Index, Index i, Index j) { return 20 <= j && j <= i; }),
      sparse_case<T>(
          "fixed_sub_blocks",
          FixedAttention{
              {.stride = kHuge, .summary = 1, .heads = only_second, .sub_block_per_head = true}},
          [](Index, Index, Index) { return false; }),
      sparse_case<T>(
          "fixed_united",
          SparseAttention{{.patterns = {fovea::unite(
                               fovea::Window{3, 0}, fovea::FixedSummary{{million, million - 9}})}}},
          [](Index, Index i, Index j) { return j <= i && (i - j <= 3 || j >= 9); }),
      sparse_case<T>("strided", StridedAttention{{.stride = kHuge}},
                     [](Index h, Index i, Index j) { return h % 2 == 0 ? j <= i : i == j; }),
      sparse_case<T>("strided_merged", StridedAttention{{.stride = million, .heads = merged}},
                     before),
      sparse_case<T>(
          "dilated",
          SparseAttention{{.patterns = {fovea::DilatedWindow{kHuge, 2 * kHuge, 4 * kHuge}}}}, own),
      sparse_case<T>("strided_keys",
                     SparseAttention{{.patterns = {fovea::StridedKeys{fovea::kUnboundedKeys}}}},
                     own),
      sparse_case<T>("dilated_by_3",
                     SparseAttention{{.patterns = {fovea::DilatedWindow{kHuge, kHuge, 3}}}},
                     [](Index, Index i, Index j) { return (i - j) % 3 == 0; }),
  };
}

/// Blocks, and lists that name many positions.
template <class T>
std::vector<Case<T>> oversized_blocks() {
  using fovea::BigBirdAttention;
  using fovea::GlobalTokens;
  using fovea::LongformerAttention;
  using fovea::SparseAttention;
  const auto all = [](Index, Index, Index) { return true; };
  std::vector<Index> even;
  for (Index i = 0; i < 200'000; i += 2) even.push_back(i);
  const fovea::BlockRows even_columns{{0, static_cast<Index>(even.size())}, even};
  const GlobalTokens tokens = GlobalTokens::at(even, true);
  const auto sees_even = [](Index i, Index j) { return j <= i && (i % 2 == 0 || j % 2 == 0); };
  return {
      sparse_case<T>("longformer",
                     LongformerAttention{{.left = kHuge, .right = kHuge, .first_global = kHuge}},
                     all),
      sparse_case<T>("longformer_window", LongformerAttention{{.left = kHuge, .causal = true}},
                     [](Index, Index i, Index j) { return j <= i; }),
      sparse_case<T>("big_bird",
                     BigBirdAttention{{.block = kHuge, .window_blocks = kHuge, .global_blocks = 1}},
                     all),
      sparse_case<T>("big_bird_of_one_block",
                     BigBirdAttention{{.block = fovea::kUnboundedKeys, .global_blocks = 0}}, all),
      sparse_case<T>(
          "block_window",
          SparseAttention{{.patterns = {fovea::BlockWindow{fovea::kUnboundedKeys, 1, 1}}}}, all),
      sparse_case<T>("block_list",
                     SparseAttention{{.patterns = {fovea::BlockList(kHuge, 1, {{0, 1}, {0}})}}},
                     all),
      sparse_case<T>("block_list_of_many",
                     SparseAttention{{.patterns = {fovea::BlockList(1, 200'000, even_columns)}}},
                     [](Index, Index i, Index j) { return i == 0 && j % 2 == 0; }),
      sparse_case<T>("tokens", SparseAttention{{.patterns = {tokens}}},
                     [=](Index, Index i, Index j) { return sees_even(i, j); }),
      sparse_case<T>(
          "window_and_tokens",
          SparseAttention{{.patterns = {fovea::WindowAndTokens({4, 0}, tokens)}}},
          [=](Index, Index i, Index j) { return sees_even(i, j) || (j <= i && i - j <= 4); }),
  };
}

}  // namespace

template <class T>
std::vector<Case<T>> oversized_options_cases() {
  return joined<T>({oversized_strides<T>(), oversized_blocks<T>()});
}
template std::vector<Case<float>> oversized_options_cases();
template std::vector<Case<double>> oversized_options_cases();

template <class T>
std::vector<Case<T>> sparse_cases() {
  return joined<T>({strided_cases<T>(), fixed_cases<T>(), composed_cases<T>()});
}
template std::vector<Case<float>> sparse_cases();
template std::vector<Case<double>> sparse_cases();

}  // namespace fovea_test
