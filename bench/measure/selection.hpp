// SPDX-License-Identifier: MIT
/// \file
/// Which of the entries fovea_compare runs, where each overtakes full attention, and which is the
/// fastest at which distance from it. Test:
/// tests/bench/measure/selection_test.cpp.
#pragma once

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "bench/entries/operator_entry.hpp"
#include "bench/io/compare_arguments.hpp"
#include "bench/measure/compare_measure.hpp"

namespace bench {

namespace detail {

/// The names, sorted, with commas between them.
inline std::string known_operators(const std::vector<Entry>& entries) {
  std::set<std::string> names;
  for (const Entry& entry : entries) names.insert(entry.names.op);
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

}  // namespace detail

/// The requested entries, by operator or label, and full attention, with which the others are
/// compared. Decoders are causal. For advice, forward passes of the operators, causal or not as
/// requested.
/// \throws ArgumentError that names the known ones
inline std::vector<Entry> selected(std::vector<Entry> entries, const CompareArguments& arguments) {
  std::erase_if(entries, [](const Entry& entry) { return entry.names.label.empty(); });
  const auto is_called = [](const Entry& entry, const std::string& name) {
    return entry.names.op == name || entry.names.label == name;
  };
  for (const std::string& name : arguments.operators) {
    const bool is_known =
        std::ranges::any_of(entries, [&](const Entry& entry) { return is_called(entry, name); });
    if (!is_known) {
      throw ArgumentError("--operators: '" + name + "' is not known; the operators are " +
                          detail::known_operators(entries));
    }
  }
  std::erase_if(entries, [&](const Entry& entry) {
    const Pass pass = entry.names.pass;
    if (arguments.causal && pass != Pass::decode && !entry.causal) return true;
    if (arguments.advise && (pass != Pass::forward || entry.causal != arguments.causal ||
                             entry.names.op.ends_with("_eigen"))) {
      return true;
    }
    if (arguments.operators.empty()) return false;
    if (entry.names.op == "full" && entry.names.pass == Pass::forward) return false;
    return std::ranges::none_of(arguments.operators,
                                [&](const std::string& name) { return is_called(entry, name); });
  });
  return entries;
}

namespace detail {

/// Why an entry has no pass with tensors of 16 bits.
inline std::string why_no_16_bits(const Entry& entry) {
  if (entry.names.pass == Pass::training) return "gradients exist for float and double only";
  if (entry.names.op == "mixer" || entry.names.op == "fsat") {
    return "Fourier transforms exist for float and double only";
  }
  if (entry.names.op.ends_with("_eigen")) return "the baselines exist for float and double only";
  return "these operators exist for float and double only";
}

}  // namespace detail

/// Leaves the entries that take tensors of 16 bits, with the passes on those in place of the ones
/// in float. Returns what is left out and why, in one line; nothing if it is nothing.
inline std::string keep_16_bits(std::vector<Entry>& entries, TensorType type) {
  const auto runner = [type](Entry& entry) -> Runner<float>& {
    return type == TensorType::f16 ? entry.f16 : entry.bf16;
  };
  std::vector<std::pair<std::string, std::string>> groups;  // of a reason: names
  for (Entry& entry : entries) {
    entry.f32 = std::move(runner(entry));
    if (entry.f32.prepare) continue;
    const std::string reason = detail::why_no_16_bits(entry);
    auto group = std::ranges::find(groups, reason, &std::pair<std::string, std::string>::first);
    if (group == groups.end()) group = groups.insert(group, {reason, ""});
    group->second += (group->second.empty() ? "" : "; ") + entry.names.label;
  }
  std::erase_if(entries, [](const Entry& entry) { return !entry.f32.prepare; });
  std::string line;
  for (const auto& [reason, names] : groups) {
    line += (line.empty() ? "" : " | ") + names + " (" + reason + ")";
  }
  return line;
}

/// From which N on an operator was faster than full attention, wherever both were measured; none:
/// not at the longest such N.
struct Overtaking {
  std::string label;
  Index longest;  ///< N where both were measured
  std::optional<Index> from;
};

/// Of the forward passes but those of full attention itself, in the order of the table.
/// \param rows by ascending N
inline std::vector<Overtaking> overtakings(const std::vector<Row>& rows) {
  std::vector<Overtaking> all;
  for (const Row& row : rows) {
    if (!row.speed_up || row.names.op == "full") continue;
    auto found = std::ranges::find(all, row.names.label, &Overtaking::label);
    if (found == all.end()) {
      all.push_back({row.names.label, row.n, {}});
      found = all.end() - 1;
    }
    found->longest = row.n;
    if (*row.speed_up <= 1) {
      found->from.reset();
    } else if (!found->from) {
      found->from = row.n;
    }
  }
  return all;
}

/// A distance below which a result is full attention's, but for rounding.
inline constexpr double kSameAsFull = 1e-5;

/// A distance beyond which a result is of another scale, and says nothing: that of zeros is 1.
inline constexpr double kFarthest = 10;

/// Whether a row is a forward pass at N, causal or not, whose distance from full attention is known
/// and says something.
inline bool has_distance(const Row& row, bool causal, Index n) {
  return row.skipped.empty() && row.names.pass == Pass::forward && row.causal == causal &&
         row.n == n && row.difference.value_or(kFarthest) < kFarthest;
}

/// The longest N of such rows; 0 if there are none.
inline Index longest_with_distance(const std::vector<Row>& rows, bool causal) {
  Index longest = 0;
  for (const Row& row : rows) {
    if (has_distance(row, causal, row.n)) longest = std::max(longest, row.n);
  }
  return longest;
}

/// The rows at N than which no other is both faster and nearer to full attention, fastest first.
inline std::vector<const Row*> fastest_at_distances(const std::vector<Row>& rows, bool causal,
                                                    Index n) {
  std::vector<const Row*> best;
  for (const Row& row : rows) {
    if (has_distance(row, causal, n)) best.push_back(&row);
  }
  std::ranges::stable_sort(best, {}, &Row::seconds);
  double least = std::numeric_limits<double>::infinity();
  std::erase_if(best, [&](const Row* row) {
    // Near zero only rounding differs.
    const double distance = *row->difference < kSameAsFull ? 0 : *row->difference;
    if (distance >= least) return true;
    least = distance;
    return false;
  });
  return best;
}

}  // namespace bench
