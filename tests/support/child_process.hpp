// SPDX-License-Identifier: MIT
/// \file
/// Runs a function in a child process, which may crash.
#pragma once

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>

namespace fovea_test {

/// Calls f in a child process: "well" if all its expectations hold, or how the child ended. It is
/// killed after 20 seconds.
inline std::string in_child_process(const std::function<void()>& f) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return "no child process";
  if (child == 0) {
    alarm(20);  // its signal ends the process
    bool failed = true;
    try {
      f();
      failed = testing::Test::HasFailure();
    } catch (...) {
    }
    std::fflush(nullptr);
    _exit(failed ? 1 : 0);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) return "no status";
  }
  if (WIFSIGNALED(status)) {
    return WTERMSIG(status) == SIGALRM ? "it hung" : "signal " + std::to_string(WTERMSIG(status));
  }
  return WEXITSTATUS(status) == 0 ? "well" : "its expectations failed";
}

}  // namespace fovea_test
