// SPDX-License-Identifier: MIT
/// \file
/// The collective check that all ranks make the same call and none has failed: if one throws, all
/// throw the same message, and none deadlocks.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <limits>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/core/executor.hpp"
#include "fovea/distributed/communicator.hpp"

FOVEA_NAMESPACE_BEGIN

namespace distributed::detail {

/// A kind of failure that all ranks throw.
enum class Failure : int { none, invalid_argument, bad_alloc, other };

/// One rank's contribution to a collective check.
struct Vote {
  Failure failure = Failure::none;  ///< the kind of failure
  std::string text;                 ///< the failure's message, or else the call
};

/// A rank's vote, given its exception or null, and the text that describes the call.
inline Vote vote_of(const std::exception_ptr& error, std::string_view call) {
  if (error == nullptr) return {Failure::none, std::string(call)};
#if defined(__cpp_exceptions)
  try {
    std::rethrow_exception(error);
  } catch (const std::invalid_argument& e) {
    return {Failure::invalid_argument, e.what()};
  } catch (const std::bad_alloc&) {
    return {Failure::bad_alloc, "not enough memory"};
  } catch (const std::exception& e) {
    return {Failure::other, e.what()};
  } catch (...) {
    return {Failure::other, "an exception of an unknown type"};
  }
#else
  return {Failure::other, ""};
#endif
}

/// Throws the common exception.
[[noreturn]] inline void throw_failure(Failure failure, const std::string& text) {
  if (failure == Failure::invalid_argument) FOVEA_THROW(std::invalid_argument(text));
  if (failure == Failure::bad_alloc) FOVEA_THROW(std::bad_alloc());
  FOVEA_THROW(std::runtime_error(text));
}

/// Broadcasts one rank's text.
inline std::string text_of_rank(const Communicator& ranks, int root, std::string text) {
  std::uint64_t size = text.size();
  ranks.check(MPI_Bcast(&size, 1, MPI_UINT64_T, root, ranks.mpi()), "MPI_Bcast");
  text.resize(size);
  ranks.check(MPI_Bcast(text.data(), static_cast<int>(size), MPI_CHAR, root, ranks.mpi()),
              "MPI_Bcast");
  return text;
}

/// "rank 3". (GCC 12 warns of a sum of texts that begins with a short one: bug 105329.)
inline std::string rank_text(int rank) { return std::string("rank ").append(std::to_string(rank)); }

/// The lowest rank for which `is_meant` holds; the number of ranks if none.
inline int lowest_rank(const Communicator& ranks, bool is_meant) {
  int lowest = is_meant ? ranks.rank() : ranks.size();
  ranks.check(MPI_Allreduce(MPI_IN_PLACE, &lowest, 1, MPI_INT, MPI_MIN, ranks.mpi()),
              "MPI_Allreduce");
  return lowest;
}

/// The FNV-1a hash of a text.
inline std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

/// \param error this rank's exception, or null (collective)
/// \param call a description of this rank's call, equal on all ranks
/// \param beside another number that must be equal on all ranks, for what the text lacks
/// \throws on all ranks the exception of the lowest failed rank, its message prefixed with the
/// rank; or std::invalid_argument if ranks make different calls. Cost: one reduction.
inline void check_collectively(const Communicator& ranks, const std::exception_ptr& error,
                               std::string_view call, std::uint64_t beside = 0) {
  Vote own = vote_of(error, call);
  const std::uint64_t hash = hash_of(own.text) ^ beside;
  // Maxima of: whether any rank failed, the hash, and its complement.
  std::array<std::uint64_t, 3> most = {own.failure == Failure::none ? 0U : 1U, hash, ~hash};
  ranks.check(MPI_Allreduce(MPI_IN_PLACE, most.data(), 3, MPI_UINT64_T, MPI_MAX, ranks.mpi()),
              "MPI_Allreduce");
  if (most[0] == 0 && most[1] == ~most[2]) return;
  if (most[0] != 0) {
    const int root = lowest_rank(ranks, own.failure != Failure::none);
    int failure = static_cast<int>(own.failure);
    ranks.check(MPI_Bcast(&failure, 1, MPI_INT, root, ranks.mpi()), "MPI_Bcast");
    const std::string text = text_of_rank(ranks, root, own.text);
    throw_failure(static_cast<Failure>(failure), rank_text(root).append(": ").append(text));
  }
  const std::string first = text_of_rank(ranks, 0, own.text);
  const int other = lowest_rank(ranks, own.text != first);
  if (other == ranks.size()) {
    FOVEA_THROW(std::invalid_argument(
        std::string(first).append(": ranks differ in their row layouts or options")));
  }
  const std::string second = text_of_rank(ranks, other, own.text);
  FOVEA_THROW(std::invalid_argument(rank_text(other)
                                        .append(" calls ")
                                        .append(second)
                                        .append(", where rank 0 calls ")
                                        .append(first)));
}

/// Calls f on all ranks, then checks collectively. \throws as check_collectively, also what f threw
/// elsewhere
template <class F>
void together(const Communicator& ranks, std::string_view call, F&& f, std::uint64_t beside = 0) {
  check_collectively(ranks, fovea::detail::caught(f), call, beside);
}

}  // namespace distributed::detail

FOVEA_NAMESPACE_END
