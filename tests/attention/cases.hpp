// SPDX-License-Identifier: MIT
/// \file
/// The operators of the conformance suite: each enters by one line of softmax_cases.cpp,
/// sparse_cases.cpp, linear_cases.cpp, fmm_cases.cpp, indexed_cases.cpp, smart_bird_cases.cpp,
/// fsat_cases.cpp, performer_cases.cpp, synthesizer_cases.cpp or luna_cases.cpp, which are compiled
/// once for all tests.
#pragma once

#include <utility>
#include <vector>

#include "attention/case.hpp"
#include "attention/reference_masks.hpp"

namespace fovea_test {

/// To enter an operator, add a line to one of them: a name, the operator, its reference mask, its
/// inputs besides q, k and v; and, if it is neither softmax nor linear attention, `make_case` with
/// its oracles. T is float or double.
template <class T>
std::vector<Case<T>> softmax_cases();
template <class T>
std::vector<Case<T>> sparse_cases();
template <class T>
std::vector<Case<T>> linear_cases();
template <class T>
std::vector<Case<T>> fmm_cases();
template <class T>
std::vector<Case<T>> indexed_cases();
template <class T>
std::vector<Case<T>> smart_bird_cases();
template <class T>
std::vector<Case<T>> fsat_cases();
template <class T>
std::vector<Case<T>> performer_cases();
template <class T>
std::vector<Case<T>> synthesizer_cases();
template <class T>
std::vector<Case<T>> luna_cases();

/// Sparse operators with options beyond any sequence, none of the operators under test: what they
/// cost must follow the sequence. In sparse_cases.cpp.
template <class T>
std::vector<Case<T>> oversized_options_cases();

/// All of these lists in one.
template <class T>
std::vector<Case<T>> joined(std::vector<std::vector<Case<T>>> lists) {
  std::vector<Case<T>> all;
  for (std::vector<Case<T>>& list : lists) {
    for (Case<T>& op : list) all.push_back(std::move(op));
  }
  return all;
}

/// Every operator under test.
template <class T>
const std::vector<Case<T>>& all_cases() {
  static const std::vector<Case<T>> cases =
      joined<T>({softmax_cases<T>(), sparse_cases<T>(), linear_cases<T>(), fmm_cases<T>(),
                 indexed_cases<T>(), smart_bird_cases<T>(), fsat_cases<T>(), performer_cases<T>(),
                 synthesizer_cases<T>(), luna_cases<T>()});
  return cases;
}

}  // namespace fovea_test
