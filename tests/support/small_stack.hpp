// SPDX-License-Identifier: MIT
/// \file
/// Runs a function on a thread with the smallest stack that some C libraries give.
#pragma once

#include <gtest/gtest.h>
#include <pthread.h>

namespace fovea_test {

template <class F>
void on_small_stack(F f) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, 128 * 1024), 0);
  pthread_t thread;
  const auto call = [](void* work) -> void* {
    (*static_cast<F*>(work))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, call, &f), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

}  // namespace fovea_test
