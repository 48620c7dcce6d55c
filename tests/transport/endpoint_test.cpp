// SPDX-License-Identifier: Apache-2.0
// Copyright The Linkspan authors
#include "linkspan/transport/endpoint.hpp"

#include <doctest/doctest.h>
#include <sys/socket.h>

#include <string>

namespace linkspan {
namespace {

std::string refusal(std::string_view text) {
  const Result<Endpoint> endpoint = Endpoint::parse(text);
  REQUIRE_FALSE(endpoint.ok());
  CHECK(endpoint.error().code == errc::invalid_argument);
  const std::string message = endpoint.error().message();
  CHECK(message.find("\"" + std::string(text) + "\"") != std::string::npos);
  CHECK(message.find("expected HOST:PORT, [IPV6]:PORT or unix:PATH") != std::string::npos);
  return message;
}

bool says(const std::string& message, std::string_view what) {
  return message.find(what) != std::string::npos;
}

class FixedResolver final : public Resolver {
 public:
  explicit FixedResolver(Result<std::vector<std::string>> answer) : answer_(std::move(answer)) {}
  Result<std::vector<std::string>> resolve(const std::string& host) override {
    asked = host;
    return answer_;
  }
  std::string asked;

 private:
  Result<std::vector<std::string>> answer_;
};

}  // namespace

TEST_CASE("every kind of endpoint is formatted as it was parsed") {
  for (const std::string text :
       {"127.0.0.1:80", "0.0.0.0:0", "255.255.255.255:65535", "[::1]:443", "[::]:0", "[2001:db8::5]:1",
        "unix:/run/service.sock", "unix:relative", "unix:@abstract"}) {
    CAPTURE(text);
    const Result<Endpoint> endpoint = Endpoint::parse(text);
    REQUIRE(endpoint.ok());
    CHECK(endpoint.value().to_string() == text);
  }
}

TEST_CASE("an endpoint knows its family, port and path") {
  const Endpoint ipv4 = Endpoint::parse("10.1.2.3:8080").value();
  CHECK(ipv4.family() == AF_INET);
  CHECK(ipv4.port() == 8080);
  CHECK_FALSE(ipv4.is_unix());
  CHECK(ipv4.unix_path().empty());
  CHECK(ipv4.host() == "10.1.2.3");

  const Endpoint ipv6 = Endpoint::parse("[::1]:9").value();
  CHECK(ipv6.family() == AF_INET6);
  CHECK(ipv6.port() == 9);
  CHECK(ipv6.host() == "[::1]");

  const Endpoint path = Endpoint::parse("unix:/tmp/x").value();
  CHECK(path.is_unix());
  CHECK(path.unix_path() == "/tmp/x");
  CHECK(path.port() == 0);
  CHECK(path.host().empty());
  CHECK(Endpoint::parse("unix:@name").value().unix_path() == "@name");
}

TEST_CASE("no address: family unspecified, written as none") {
  CHECK(Endpoint().family() == AF_UNSPEC);
  CHECK(Endpoint().to_string() == "none");
  CHECK(Endpoint().host().empty());
  CHECK(Endpoint() == Endpoint());
}

TEST_CASE("endpoints are equal when their addresses are") {
  CHECK(Endpoint::parse("1.2.3.4:5").value() == Endpoint::parse("1.2.3.4:5").value());
  CHECK(Endpoint::parse("[0:0::1]:5").value() == Endpoint::parse("[::1]:5").value());
  CHECK_FALSE(Endpoint::parse("1.2.3.4:5").value() == Endpoint::parse("1.2.3.4:6").value());
  CHECK_FALSE(Endpoint::parse("unix:/a").value() == Endpoint::parse("unix:@a").value());
}

TEST_CASE("what is no address is refused, with the text, the reason and what was expected") {
  CHECK(says(refusal(""), "the port is missing"));
  CHECK(says(refusal("127.0.0.1"), "the port is missing"));
  CHECK(says(refusal(":80"), "the host is missing"));
  CHECK(says(refusal("[]:80"), "the host is missing"));
  CHECK(says(refusal("127.0.0.1:"), "the port is not a number from 0 to 65535"));
  CHECK(says(refusal("127.0.0.1:65536"), "the port is not a number from 0 to 65535"));
  CHECK(says(refusal("127.0.0.1:-1"), "the port is not a number from 0 to 65535"));
  CHECK(says(refusal("127.0.0.1:http"), "the port is not a number from 0 to 65535"));
  CHECK(says(refusal("127.0.0.1:80 "), "the port is not a number from 0 to 65535"));
  CHECK(says(refusal("::1:80"), "an IPv6 address stands in brackets"));
  CHECK(says(refusal("[127.0.0.1]:80"), "only an IPv6 address stands in brackets"));
  CHECK(says(refusal("localhost:80"), "the host is not a numeric address"));
  CHECK(says(refusal("1.2.3:80"), "the host is not a numeric address"));
  CHECK(says(refusal("[127.0.0.1:80"), "the host is not a numeric address"));
  CHECK(says(refusal("unix:"), "the path is missing"));
  CHECK(says(refusal("unix:" + std::string(200, 'x')), "the path has more than 107 characters"));
}

TEST_CASE("the longest unix path is accepted, a longer one is not") {
  const std::string longest = "unix:" + std::string(107, 'p');
  REQUIRE(Endpoint::parse(longest).ok());
  CHECK(Endpoint::parse(longest).value().to_string() == longest);
  CHECK_FALSE(Endpoint::parse(longest + "p").ok());
}

TEST_CASE("a name becomes one endpoint for each of its addresses, in the resolver's order") {
  FixedResolver resolver(std::vector<std::string>{"::1", "127.0.0.1"});
  const Result<std::vector<Endpoint>> endpoints = resolve_endpoints("example:80", resolver);
  REQUIRE(endpoints.ok());
  REQUIRE(endpoints.value().size() == 2);
  CHECK(resolver.asked == "example");
  CHECK(endpoints.value()[0].to_string() == "[::1]:80");
  CHECK(endpoints.value()[1].to_string() == "127.0.0.1:80");
}

TEST_CASE("what is an address already is not asked for") {
  FixedResolver resolver(Error(errc::unavailable, "not to be asked"));
  CHECK(resolve_endpoints("127.0.0.1:80", resolver).value().at(0).to_string() == "127.0.0.1:80");
  CHECK(resolve_endpoints("unix:/x", resolver).value().at(0).to_string() == "unix:/x");
  CHECK_FALSE(resolve_endpoints("unix:", resolver).ok());
  CHECK_FALSE(resolve_endpoints("example:port", resolver).ok());
  CHECK(resolver.asked.empty());
}

TEST_CASE("a name that cannot be resolved, or has no addresses, is an error that says so") {
  FixedResolver failing(Error(errc::unresolved, "no such name"));
  CHECK(says(resolve_endpoints("example:80", failing).error().message(), "no such name"));
  FixedResolver empty(std::vector<std::string>{});
  const Error none = resolve_endpoints("example:80", empty).error();
  CHECK(none.code == errc::unresolved);
  CHECK(says(none.message(), "example has no addresses"));
}

}  // namespace linkspan
