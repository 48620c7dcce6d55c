// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/loop/environment.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#ifdef __linux__
#include <sched.h>
#endif

#include <algorithm>
#include <cerrno>
#include <random>
#include <thread>

#include "lib/base/never_destroyed.hpp"
#include "linkspan/loop/files.hpp"

namespace linkspan {

Random::~Random() = default;
Thread::~Thread() = default;
Threads::~Threads() = default;
Resolver::~Resolver() = default;

namespace {

class SystemRandom final : public Random {
 public:
  std::uint64_t next() noexcept override {
    static thread_local std::random_device device;
    return std::uint64_t{device()} << 32 | device();
  }
};

class SystemThread final : public Thread {
 public:
  void run(std::thread thread) noexcept { thread_ = std::move(thread); }
  ~SystemThread() override {
    if (thread_.joinable()) thread_.join();  // not when it could not be started
  }

 private:
  std::thread thread_;
};

void name_this_thread([[maybe_unused]] const std::string& name) noexcept {
#if defined(__linux__)
  constexpr std::size_t kNameMax = 15;
  static_cast<void>(::pthread_setname_np(::pthread_self(), name.substr(0, kNameMax).c_str()));
#elif defined(__APPLE__)
  static_cast<void>(::pthread_setname_np(name.c_str()));
#endif
}

// Elsewhere there is no CPU that a thread can be bound to.
bool may_use_cpu([[maybe_unused]] int cpu) noexcept {
#ifdef __linux__
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  static_cast<void>(::sched_getaffinity(0, sizeof(allowed), &allowed));
  return cpu >= 0 && cpu < CPU_SETSIZE && CPU_ISSET(static_cast<unsigned>(cpu), &allowed);
#else
  return false;
#endif
}

void bind_this_thread([[maybe_unused]] int cpu) noexcept {
#ifdef __linux__
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<unsigned>(cpu), &set);
  static_cast<void>(::pthread_setaffinity_np(::pthread_self(), sizeof(set), &set));
#endif
}

class SystemThreads final : public Threads {
 public:
  Result<std::unique_ptr<Thread>> start(const std::string& name, std::optional<int> cpu,
                                        unique_function<void()> body) override {
    // Checked before there is a thread: one that cannot be bound must not run at all.
    if (cpu && !may_use_cpu(*cpu)) {
      return Error(errc::invalid_argument, "CPU " + std::to_string(*cpu) + " for thread " + name +
                                               " is not one that this process may use");
    }
    try {
      auto thread = std::make_unique<SystemThread>();
      thread->run(std::thread([name, cpu, run = std::move(body)]() mutable {
        name_this_thread(name);
        if (cpu) bind_this_thread(*cpu);
        run();
      }));
      return std::unique_ptr<Thread>(std::move(thread));
    } catch (const std::system_error& error) {
      return Error(error.code(), "start of thread " + name);
    }
  }
};

class SystemResolver final : public Resolver {
 public:
  Result<std::vector<std::string>> resolve(const std::string& host) override {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int status = ::getaddrinfo(host.c_str(), nullptr, &hints, &found);
    if (status == EAI_SYSTEM) return Error(system_error_code(errno), "resolving " + host);
    if (status != 0) return Error(errc::unresolved, "resolving " + host + ": " + ::gai_strerror(status));
    std::vector<std::string> addresses;
    for (const addrinfo* entry = found; entry != nullptr; entry = entry->ai_next) {
      char text[NI_MAXHOST];
      if (::getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) !=
          0) {
        continue;
      }
      if (std::ranges::find(addresses, text) == addresses.end()) addresses.emplace_back(text);
    }
    ::freeaddrinfo(found);
    return addresses;
  }
};

struct SystemEnvironment {
  SystemRandom random;
  SystemThreads threads;
  SystemResolver resolver;
  Environment environment{monotonic_clock(), random, threads, resolver, system_files()};
};

}  // namespace

const Environment& Environment::system() noexcept {
  static NeverDestroyed<SystemEnvironment> system;
  return system.get().environment;
}

}  // namespace linkspan
