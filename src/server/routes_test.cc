#include "server/routes.h"

#include <gtest/gtest.h>

#include <set>

#include "base/json.h"
#include "server/openapi.h"

namespace deepinfer {
namespace {

TEST(Routes, FindsByMethodAndPath) {
  EXPECT_EQ(find_route("GET", "/v1/models").route->id, RouteId::kModels);
  EXPECT_EQ(find_route("HEAD", "/v1/models").route->id, RouteId::kModels);
  EXPECT_EQ(find_route("GET", "/v1/models/a%2Fb").params, std::vector<std::string>{"a/b"});
  EXPECT_EQ(find_route("GET", "/v1/models/a/b").params, std::vector<std::string>{"a/b"});
  EXPECT_EQ(find_route("GET", "/v1/files/f1/content").route->id, RouteId::kFileContent);
  EXPECT_EQ(find_route("GET", "/v1/files/f1").params, std::vector<std::string>{"f1"});
  EXPECT_EQ(find_route("POST", "/v1/files/f1").allowed, "GET, HEAD, DELETE, OPTIONS");
  for (const char* path :
       {"", "*", "/v1", "/v1/models/", "/v1/files/f1/", "/v1/files//content", "/v1/files/f1/x/content", "//", "/V1/models"}) {
    const RouteMatch match = find_route("GET", path);
    EXPECT_FALSE(match.route) << path;
    EXPECT_EQ(match.allowed, "") << path;
  }
}

TEST(Routes, TheWiresHaveTheirPathsAndTheirErrors) {
  EXPECT_EQ(find_route("POST", "/v1/messages").route->id, RouteId::kMessages);
  EXPECT_EQ(find_route("POST", "/v1/messages/count_tokens").route->id, RouteId::kCountTokens);
  EXPECT_EQ(find_route("POST", "/anthropic/v1/messages").route->id, RouteId::kMessages);
  EXPECT_EQ(find_route("POST", "/v1/responses").route->id, RouteId::kCreateResponse);
  EXPECT_EQ(find_route("GET", "/v1/responses/r1").params, std::vector<std::string>{"r1"});
  EXPECT_EQ(find_route("POST", "/v1/responses/r1/cancel").route->id, RouteId::kCancelResponse);
  EXPECT_EQ(find_route("GET", "/v1/responses/r1/input_items").route->id, RouteId::kInputItems);
  EXPECT_EQ(find_route("POST", "/v1/responses/input_tokens").route->id, RouteId::kCountInput);
  EXPECT_EQ(find_route("GET", "/v1/responses").allowed, "POST, OPTIONS");
  EXPECT_EQ(dialect_of("/v1/messages/nothing"), Dialect::kAnthropic);
  EXPECT_EQ(dialect_of("/anthropic/v1/models"), Dialect::kAnthropic);
  EXPECT_EQ(dialect_of("/v1/responses/r1"), Dialect::kOpenAi);
}

TEST(Routes, TheOfficialServicesPathsAreOtherNames) {
  for (const auto& [method, path, id] : std::initializer_list<std::tuple<const char*, const char*, RouteId>>{
           {"POST", "/chat/completions", RouteId::kChat},
           {"POST", "/beta/chat/completions", RouteId::kChat},
           {"POST", "/beta/completions", RouteId::kCompletion},
           {"GET", "/beta/models", RouteId::kModels},
           {"GET", "/models/tiny", RouteId::kModel},
           {"GET", "/anthropic/v1/models/tiny", RouteId::kModel},
           {"POST", "/anthropic/v1/messages/count_tokens", RouteId::kCountTokens},
           {"POST", "/responses", RouteId::kCreateResponse},
           {"POST", "/responses/input_tokens", RouteId::kCountInput},
           {"GET", "/responses/r1", RouteId::kGetResponse},
           {"DELETE", "/responses/r1", RouteId::kDeleteResponse},
           {"POST", "/responses/r1/cancel", RouteId::kCancelResponse},
           {"GET", "/responses/r1/input_items", RouteId::kInputItems}}) {
    const RouteMatch match = find_route(method, path);
    ASSERT_TRUE(match.route) << path;
    EXPECT_EQ(match.route->id, id) << path;
  }
  for (const char* path :
       {"/files", "/modelsx", "/beta", "/messages", "/anthropic/v1/responses", "/anthropic/models", "/beta/v1/models"})
    EXPECT_FALSE(find_route("GET", path).route) << path;
}

// Adding to this list is a decision: whoever can connect may call these.
TEST(Routes, FourNeedNoKey) {
  std::set<std::string> open;
  for (const Route& route : all_routes()) {
    if (route.access == RouteAccess::kOpen) open.insert(std::string(route.method) + " " + std::string(route.path));
  }
  EXPECT_EQ(open, (std::set<std::string>{"GET /", "GET /health", "GET /health/live", "GET /health/ready"}));
}

TEST(Routes, TheDescriptionHasEveryRouteAndEverySchema) {
  const auto json = Json::parse(openapi_text("1"));
  ASSERT_TRUE(json) << json.error().message;
  const Json& schemas = json->at("components").at("schemas");
  for (const Route& route : all_routes()) {
    EXPECT_TRUE(json->at("paths").at(route.path).is_object()) << route.path;
    for (const std::string_view name : {route.request_schema, route.answer_schema}) {
      EXPECT_TRUE(name.empty() || schemas.at(name).is_object()) << name;
    }
  }
  const std::string text = json->dump();
  constexpr std::string_view kPrefix = "\"#/components/schemas/";
  for (size_t at = text.find(kPrefix); at != std::string::npos; at = text.find(kPrefix, at + 1)) {
    const size_t begin = at + kPrefix.size();
    const std::string name = text.substr(begin, text.find('"', begin) - begin);
    EXPECT_TRUE(schemas.at(name).is_object()) << name;
  }
}

}  // namespace
}  // namespace deepinfer
