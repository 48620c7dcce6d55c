// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
//
// What a user's callback has thrown ends in the log. Nothing is allocated: it may have been std::bad_alloc.
#pragma once

#include <string_view>

namespace linkspan {

/// Call inside a catch block: logs the exception that is being handled as "<callback> threw: <what>".
void log_exception(std::string_view room, std::string_view callback) noexcept;

}  // namespace linkspan
