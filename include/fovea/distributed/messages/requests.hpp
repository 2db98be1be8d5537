// SPDX-License-Identifier: MIT
/// \file
/// Exchange plans that ranks cannot compute locally: receivers request rows, or owners announce who
/// gets them.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "fovea/distributed/communicator.hpp"
#include "fovea/distributed/messages/exchange_plan.hpp"
#include "fovea/distributed/messages/mpi_type.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed {

/// Sends every rank a list of ranges. Collective.
/// \param to_ranks [ranks]   \returns [ranks] the lists for this rank
/// \throws std::bad_alloc, and std::runtime_error if MPI fails
inline std::vector<std::vector<Range>> exchanged_ranges(
    const Communicator& ranks, const std::vector<std::vector<Range>>& to_ranks) {
  static_assert(sizeof(Range) == 2 * sizeof(std::int64_t));
  const auto size = static_cast<std::size_t>(ranks.size());
  std::vector<int> sent(size);
  std::vector<int> received(size);
  std::vector<Range> all_sent;
  for (std::size_t n = 0; n < size; ++n) {
    sent[n] = static_cast<int>(to_ranks[n].size());
    all_sent.insert(all_sent.end(), to_ranks[n].begin(), to_ranks[n].end());
  }
  ranks.check(MPI_Alltoall(sent.data(), 1, MPI_INT, received.data(), 1, MPI_INT, ranks.mpi()),
              "MPI_Alltoall");
  const auto places = [&](const std::vector<int>& counts) {
    std::vector<int> first(size);
    for (std::size_t n = 1; n < size; ++n) first[n] = first[n - 1] + counts[n - 1];
    return first;
  };
  const std::vector<int> sent_at = places(sent);
  const std::vector<int> received_at = places(received);
  std::vector<Range> all(static_cast<std::size_t>(received_at[size - 1] + received[size - 1]));
  const detail::MpiType range = detail::MpiType::row(ranks, sizeof(Range));
  ranks.check(MPI_Alltoallv(all_sent.data(), sent.data(), sent_at.data(), range.get(), all.data(),
                            received.data(), received_at.data(), range.get(), ranks.mpi()),
              "MPI_Alltoallv");
  std::vector<std::vector<Range>> lists(size);
  for (std::size_t n = 0; n < size; ++n) {
    const auto first = all.begin() + received_at[n];
    lists[n].assign(first, first + received[n]);
  }
  return lists;
}

namespace detail {

/// The transfers of lists that are not empty.
inline std::vector<Transfer> transfers(std::vector<std::vector<Range>> of_ranks) {
  std::vector<Transfer> made;
  for (std::size_t n = 0; n < of_ranks.size(); ++n) {
    if (!of_ranks[n].empty()) made.push_back({static_cast<int>(n), std::move(of_ranks[n])});
  }
  return made;
}

}  // namespace detail

/// This rank's sends and receives if every rank gets the rows that it needs and does not hold.
/// Collective.
/// \param needed the rows that this rank needs, ascending, disjoint
/// \throws as exchanged_ranges
inline ExchangePlan requested(const Communicator& ranks, const RowLayout& layout,
                              const std::vector<Range>& needed) {
  std::vector<std::vector<Range>> asked(static_cast<std::size_t>(ranks.size()));
  for (int other = 0; other < ranks.size(); ++other) {
    if (other == ranks.rank()) continue;
    asked[static_cast<std::size_t>(other)] = intersection(needed, layout.of(other));
  }
  ExchangePlan plan;
  plan.sends = detail::transfers(exchanged_ranges(ranks, asked));
  plan.receives = detail::transfers(std::move(asked));
  return plan;
}

/// This rank's sends and receives if it sends each rank some of its rows. Collective.
/// \param to_ranks [ranks] ascending, disjoint; none for this rank
/// \throws as exchanged_ranges
inline ExchangePlan announced(const Communicator& ranks, std::vector<std::vector<Range>> to_ranks) {
  ExchangePlan plan;
  plan.receives = detail::transfers(exchanged_ranges(ranks, to_ranks));
  plan.sends = detail::transfers(std::move(to_ranks));
  return plan;
}

}  // namespace distributed

FOVEA_NAMESPACE_END
