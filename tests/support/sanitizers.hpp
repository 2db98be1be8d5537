// SPDX-License-Identifier: MIT
/// \file
/// Which sanitizer the tests are built with: GCC and Clang have different macros.
#pragma once

#if defined(__SANITIZE_ADDRESS__)
#define FOVEA_TEST_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define FOVEA_TEST_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define FOVEA_TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define FOVEA_TEST_TSAN 1
#endif
#endif

// GCC has no macro for it.
#if defined(__has_feature)
#if __has_feature(undefined_behavior_sanitizer)
#define FOVEA_TEST_UBSAN 1
#endif
#endif
