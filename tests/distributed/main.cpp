// SPDX-License-Identifier: MIT
/// \file
/// The main function of tests that several ranks run together: they fail if they fail on one.
#include <gtest/gtest.h>
#include <mpi.h>

#include "distributed/before_init.hpp"
#include "fovea/distributed/communicator.hpp"
#include "support/cases_of_file.hpp"
#include "support/refusal.hpp"

namespace fovea_test {

std::string& refusal_before_init() {
  static std::string text;
  return text;
}

}  // namespace fovea_test

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  fovea_test::refusal_before_init() =
      fovea_test::refusal([] { fovea::distributed::Communicator ranks(MPI_COMM_WORLD); });
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  const bool can_run = provided >= MPI_THREAD_FUNNELED && fovea_test::choose_cases(argc, argv);
  int failed = can_run ? RUN_ALL_TESTS() : 1;
  MPI_Allreduce(MPI_IN_PLACE, &failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return failed;
}
