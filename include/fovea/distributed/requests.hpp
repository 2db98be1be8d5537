// SPDX-License-Identifier: MIT
/// \file
/// An exchange plan where ranks do not know what the others need: every rank asks.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/exchange_plan.hpp"
#include "fovea/distributed/mpi_type.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// What this rank sends and receives if every rank gets the rows that it needs and does not hold.
/// All ranks call it together.
/// \param needed the rows that this rank needs, ascending, disjoint
/// \throws std::bad_alloc, and std::runtime_error if MPI fails
inline ExchangePlan requested(const Communicator& ranks, const RowLayout& layout,
                              const std::vector<Range>& needed) {
  static_assert(sizeof(Range) == 2 * sizeof(std::int64_t));
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<int> asked(size);  // ranges for each rank
  std::vector<int> wanted(size);
  std::vector<Range> questions;
  ExchangePlan plan;
  for (int other = 0; other < ranks.size(); ++other) {
    if (other == ranks.rank()) continue;
    std::vector<Range> rows = intersection(needed, layout.of(other));
    asked[static_cast<std::size_t>(other)] = static_cast<int>(rows.size());
    questions.insert(questions.end(), rows.begin(), rows.end());
    if (!rows.empty()) plan.receives.push_back({other, std::move(rows)});
  }
  ranks.check(MPI_Alltoall(asked.data(), 1, MPI_INT, wanted.data(), 1, MPI_INT, ranks.mpi()),
              "MPI_Alltoall");
  const auto places = [&](const std::vector<int>& counts) {
    std::vector<int> first(size);
    for (std::size_t n = 1; n < size; ++n) first[n] = first[n - 1] + counts[n - 1];
    return first;
  };
  const std::vector<int> asked_at = places(asked);
  const std::vector<int> wanted_at = places(wanted);
  std::vector<Range> answers(static_cast<std::size_t>(wanted_at[size - 1] + wanted[size - 1]));
  const detail::MpiType range = detail::MpiType::row(ranks, sizeof(Range));
  ranks.check(
      MPI_Alltoallv(questions.data(), asked.data(), asked_at.data(), range.get(), answers.data(),
                    wanted.data(), wanted_at.data(), range.get(), ranks.mpi()),
      "MPI_Alltoallv");
  for (int other = 0; other < ranks.size(); ++other) {
    const auto at = static_cast<std::size_t>(other);
    const auto first = answers.begin() + wanted_at[at];
    if (wanted[at] > 0) plan.sends.push_back({other, {first, first + wanted[at]}});
  }
  return plan;
}

}  // namespace distributed

FOVEA_NAMESPACE_END
